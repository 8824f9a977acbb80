//! Guarded writes: commands or a script of the user's, which run only under a condition, in one script
//! with the look at it.
//!
//! The script has two parts, each a `.lua` file: the condition (`mine`, `newest`), and what runs then
//! (`commands`, `body`).

use redis::Value;

use super::names::Names;
use super::pack::{self, Command};
use super::{Arg, How, without_number};

/// When it may run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition<'a> {
    /// The lock is still this lease's.
    Mine { names: &'a Names, token: &'a str, fence: u64 },
    /// The gate has seen no higher fence.
    Newest { gate: &'a str, fence: u64 },
}

/// What is to run.
#[derive(Debug)]
pub(crate) enum Writes<'a> {
    Commands(Vec<Vec<&'a [u8]>>),
    Script { source: &'a str, keys: Vec<&'a [u8]>, args: Vec<&'a [u8]> },
}

/// What came of it.
#[derive(PartialEq, Debug)]
pub(crate) enum Written {
    /// It ran, and answered this.
    Done(Vec<Value>),
    /// There is no lock.
    Gone,
    /// The lock is another's.
    Others,
    /// The gate has seen this fence.
    Stale(u64),
}

/// The most parts of a command: Lua cannot hand on many more.
const MOST_PARTS: usize = 7000;

/// A guarded write, ready to be packed for each call.
pub(crate) struct Guarded<'a> {
    condition: Condition<'a>,
    writes: &'a Writes<'a>,
    source: String,
}

impl<'a> Guarded<'a> {
    pub(crate) fn new(condition: Condition<'a>, writes: &'a Writes<'a>) -> Guarded<'a> {
        let first = match condition {
            Condition::Mine { .. } => include_str!("mine.lua"),
            Condition::Newest { .. } => include_str!("newest.lua"),
        };
        let source = match writes {
            Writes::Commands(_) => [first, include_str!("commands.lua")].concat(),
            // The user's script comes first, so that the lines which its errors name are its own.
            Writes::Script { source, .. } => {
                ["local function body(KEYS, ARGV) ", source, "\nend\n", first, include_str!("body.lua")].concat()
            }
        };
        Guarded { condition, writes, source }
    }

    pub(crate) fn pack(&self, how: How, n: u64) -> Command {
        let mut out = Vec::with_capacity(256);
        let keys = match self.writes {
            Writes::Commands(_) => &[][..],
            Writes::Script { keys, .. } => keys,
        };
        let (own, packed, [first, second]) = self.condition();
        // The verb, the script, the count of keys, the keys, n, two of ours, theirs.
        pack::array(&mut out, 3 + own + keys.len() + 3 + self.count());
        match how {
            How::Hash => {
                out.extend(pack::bulks(&["EVALSHA", redis::Script::new(&self.source).get_hash()]));
            }
            How::Source => out.extend(pack::bulks(&["EVAL", &self.source])),
        }
        pack::number(&mut out, (own + keys.len()) as u64);
        out.extend(packed);
        keys.iter().for_each(|key| pack::bulk(&mut out, key));
        pack::number(&mut out, n);
        first.pack(&mut out);
        second.pack(&mut out);
        self.append(&mut out);
        Command { bytes: out, n: Some(n) }
    }

    /// How many keys of its own it has, those packed, and its arguments.
    fn condition(&self) -> (usize, Vec<u8>, [Arg<'a>; 2]) {
        match self.condition {
            Condition::Mine { names, token, fence } => {
                let (count, packed) = names.packed_keys();
                (count, packed.to_vec(), [Arg::Text(token), Arg::Number(fence)])
            }
            Condition::Newest { gate, fence } => (1, pack::bulks(&[gate]), [Arg::Text(""), Arg::Number(fence)]),
        }
    }

    /// How many arguments the user's part has.
    fn count(&self) -> usize {
        match self.writes {
            Writes::Commands(commands) => commands.iter().map(|parts| 1 + parts.len()).sum(),
            Writes::Script { args, .. } => args.len(),
        }
    }

    fn append(&self, out: &mut Vec<u8>) {
        match self.writes {
            Writes::Commands(commands) => {
                for parts in commands {
                    pack::number(out, parts.len() as u64);
                    parts.iter().for_each(|part| pack::bulk(out, part));
                }
            }
            Writes::Script { args, .. } => args.iter().for_each(|arg| pack::bulk(out, arg)),
        }
    }

    /// What an answer means that is this call's own; the answer again if it is none.
    pub(crate) fn read(&self, answer: Value) -> Result<Written, Value> {
        match answer {
            Value::Array(mut parts) if !parts.is_empty() => {
                parts.remove(0);
                // Lua ends a list before the nothing that a script returned.
                if matches!(self.writes, Writes::Script { .. }) && parts.is_empty() {
                    parts.push(Value::Nil);
                }
                Ok(Written::Done(parts))
            }
            answer => match without_number(&answer).and_then(refusal) {
                Some(refusal) => Ok(refusal),
                None => Err(answer),
            },
        }
    }
}

impl Writes<'_> {
    /// What cannot be run this way, in words for its user.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Writes::Script { source, .. } if source.starts_with("#!") => {
                Err("a script with a #! line cannot run inside another".to_owned())
            }
            Writes::Script { .. } => Ok(()),
            Writes::Commands(commands) => match commands.iter().map(Vec::len).max() {
                Some(parts) if parts > MOST_PARTS => {
                    Err(format!("a command of {parts} parts: at most {MOST_PARTS} are possible"))
                }
                _ => Ok(()),
            },
        }
    }
}

fn refusal(text: &str) -> Option<Written> {
    match text {
        "-1" => Some(Written::Gone),
        "0" => Some(Written::Others),
        text => Some(Written::Stale(text.strip_prefix("stale ")?.parse().ok()?)),
    }
}
