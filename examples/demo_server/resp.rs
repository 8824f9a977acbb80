//! RESP2 on the wire: a request comes in, a reply goes out. Called by the connection threads (requests)
//! and by the engine (replies).

use std::io::{self, BufRead, Read};

/// One word of a request: any bytes.
pub(crate) type Word = Vec<u8>;

#[derive(Debug)]
pub(crate) enum Reply {
    Status(String),
    /// Its text begins with the code, without the `-`.
    Error(String),
    Int(i64),
    Bulk(Word),
    Nil,
    Array(Vec<Reply>),
    NilArray,
    /// One after the other: SUBSCRIBE answers once a channel.
    Several(Vec<Reply>),
}

impl Reply {
    pub(crate) fn ok() -> Reply {
        Reply::Status("OK".to_owned())
    }

    pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().to_vec())
    }

    pub(crate) fn or_nil(bytes: Option<impl AsRef<[u8]>>) -> Reply {
        bytes.map_or(Reply::Nil, Reply::bulk)
    }

    pub(crate) fn bulks<B: AsRef<[u8]>>(words: impl IntoIterator<Item = B>) -> Reply {
        Reply::Array(words.into_iter().map(Reply::bulk).collect())
    }

    /// A number of things. Memory ends before `i64` does.
    pub(crate) fn count(n: usize) -> Reply {
        Reply::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut line = |mark: char, text: &str| out.extend(format!("{mark}{text}\r\n").bytes());
        match self {
            // A line break would begin another reply.
            Reply::Status(text) => line('+', &text.replace(['\r', '\n'], " ")),
            Reply::Error(text) => line('-', &text.replace(['\r', '\n'], " ")),
            Reply::Int(n) => line(':', &n.to_string()),
            Reply::Nil => line('$', "-1"),
            Reply::NilArray => line('*', "-1"),
            Reply::Bulk(bytes) => {
                line('$', &bytes.len().to_string());
                out.extend(bytes);
                out.extend(b"\r\n");
            }
            Reply::Array(items) => {
                line('*', &items.len().to_string());
                items.iter().for_each(|item| item.write(out));
            }
            Reply::Several(replies) => replies.iter().for_each(|reply| reply.write(out)),
        }
    }
}

/// The longest word that is read, and the most words: a port that is not spoken to in Redis' language
/// must not cost all memory.
const MOST_BYTES: usize = 64 << 20;
const MOST_WORDS: usize = 1 << 20;

/// The next request, empty for an empty line; `None` at the end of the connection.
pub(crate) fn read_request(from: &mut impl BufRead) -> io::Result<Option<Vec<Word>>> {
    let Some(line) = read_line(from)? else { return Ok(None) };
    if line.first() != Some(&b'*') {
        // As a person types it.
        return Ok(Some(
            line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect(),
        ));
    }
    let count = length(&line[1..], MOST_WORDS, "invalid multibulk length")?;
    let mut words = Vec::new();
    for _ in 0..count {
        let line = read_line(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if line.first() != Some(&b'$') {
            let got = line.first().map_or(' ', |byte| char::from(*byte));
            return Err(protocol(&format!("expected '$', got '{got}'")));
        }
        let length = length(&line[1..], MOST_BYTES, "invalid bulk length")?;
        let mut word = vec![0; length + 2];
        from.read_exact(&mut word)?;
        word.truncate(length);
        words.push(word);
    }
    Ok(Some(words))
}

fn read_line(from: &mut impl BufRead) -> io::Result<Option<Word>> {
    let mut line = Vec::new();
    from.by_ref().take(1 << 16).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let text = line.strip_suffix(b"\r\n").or_else(|| line.strip_suffix(b"\n"));
    text.map(|text| Some(text.to_vec())).ok_or_else(|| protocol("too big inline request"))
}

fn length(text: &[u8], most: usize, complaint: &str) -> io::Result<usize> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number| *number <= most).ok_or_else(|| protocol(complaint))
}

fn protocol(complaint: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("ERR Protocol error: {complaint}"))
}
