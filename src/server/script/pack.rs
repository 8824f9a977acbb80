//! Commands as bytes for the wire (RESP arrays of bulk strings), packed by hand: an uncontended cycle
//! is two short round trips, and building a `redis::Cmd` for each would cost 2 % of it.

use redis::Value;

use crate::decimal;

/// One command, and how its answer is known to be its own.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) bytes: Vec<u8>,
    /// The number that the answer ends with; plain commands have none.
    pub(crate) n: Option<u64>,
}

impl Command {
    /// A plain command of text parts.
    pub(crate) fn plain(parts: &[&str]) -> Command {
        Command { bytes: command(parts), n: None }
    }

    /// Is this its answer, and not that of another call on the same connection?
    pub(crate) fn owns(&self, answer: &Value) -> bool {
        let Some(n) = self.n else { return true };
        let number = match answer {
            // What a guarded write answered stands behind its number.
            Value::Array(parts) => parts.first().and_then(text_of),
            answer => text_of(answer).and_then(|text| text.rsplit_once(' ')).map(|(_, last)| last),
        };
        number.is_some_and(|number| number.parse() == Ok(n))
    }
}

/// The text of an answer of a script.
pub(crate) fn text_of(answer: &Value) -> Option<&str> {
    match answer {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// Starts a command of `parts` parts.
pub(crate) fn array(out: &mut Vec<u8>, parts: usize) {
    header(out, b'*', parts as u64);
}

/// Appends one part.
pub(crate) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number as one part.
pub(crate) fn number(out: &mut Vec<u8>, n: u64) {
    let mut digits = [0; 20];
    bulk(out, decimal::write(&mut digits, n));
}

/// A whole command of text parts.
pub(crate) fn command(parts: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    array(&mut out, parts.len());
    out.extend(bulks(parts));
    out
}

/// Some parts of a command.
pub(crate) fn bulks(parts: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    parts.iter().for_each(|part| bulk(&mut out, part.as_bytes()));
    out
}

/// The commands that the redis crate packed, part by part; `None` if that is not what it packs.
pub(crate) fn unpack(mut bytes: &[u8]) -> Option<Vec<Vec<&[u8]>>> {
    let mut commands = Vec::new();
    while !bytes.is_empty() {
        let parts = take_header(&mut bytes, b'*')?;
        commands.push((0..parts).map(|_| take_bulk(&mut bytes)).collect::<Option<_>>()?);
    }
    Some(commands)
}

fn take_bulk<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_header(bytes, b'$')?;
    let (bulk, rest) = bytes.split_at_checked(length)?;
    *bytes = rest.strip_prefix(b"\r\n")?;
    Some(bulk)
}

fn take_header(bytes: &mut &[u8], kind: u8) -> Option<usize> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    let (line, rest) = bytes.split_at(end);
    *bytes = rest.strip_prefix(b"\r\n")?;
    str::from_utf8(line.strip_prefix(&[kind])?).ok()?.parse().ok()
}

fn header(out: &mut Vec<u8>, kind: u8, n: u64) {
    let digit = |n: u64| b'0' + (n % 10) as u8;
    match n {
        0..10 => out.extend_from_slice(&[kind, digit(n), b'\r', b'\n']),
        10..100 => out.extend_from_slice(&[kind, digit(n / 10), digit(n), b'\r', b'\n']),
        _ => {
            let mut digits = [0; 20];
            out.push(kind);
            out.extend_from_slice(decimal::write(&mut digits, n));
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn an_answer_that_ends_with_another_number_is_not_accepted() {
        let command = super::Command { bytes: Vec::new(), n: Some(4711) };
        let answer = |text: &str| redis::Value::BulkString(text.into());
        assert!(command.owns(&answer("held 17 1 4711")));
        assert!(command.owns(&answer("1 4711")));
        for other in ["held 17 1 4710", "4711", "1 14711", "PONG", "", "1 4711 "] {
            assert!(!command.owns(&answer(other)), "{other:?}");
        }
        assert!(!command.owns(&redis::Value::Nil));
        assert!(!command.owns(&redis::Value::Int(4711)));
        let list = |n: &str| redis::Value::Array(vec![redis::Value::BulkString(n.into()), redis::Value::Nil]);
        assert!(command.owns(&list("4711")) && !command.owns(&list("4710")));
        assert!(!command.owns(&redis::Value::Array(Vec::new())));
        assert!(super::Command::plain(&["GET", "x"]).owns(&redis::Value::Nil));
    }

    proptest! {
        #[test]
        fn a_command_is_packed_as_redis_rs_packs_it(parts in prop::collection::vec(".*", 1..6)) {
            let mut cmd = redis::Cmd::new();
            parts.iter().for_each(|part| { cmd.arg(part); });
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            prop_assert_eq!(super::command(&parts), cmd.get_packed_command());
            let unpacked: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
            let packed = cmd.get_packed_command();
            prop_assert_eq!(super::unpack(&packed), Some(vec![unpacked]));
        }

        #[test]
        fn no_bytes_make_unpack_panic(bytes: Vec<u8>) {
            let _ = super::unpack(&bytes);
        }
    }
}
