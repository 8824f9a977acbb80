//! The scripts: what they are called with and what they answer. Nothing else knows.
//!
//! A [`Request`] is one verb for one key with one number; it is packed twice, as EVALSHA and, for a
//! server that does not know the script, as EVAL (which makes it known). The answer is one string
//! that ends with the request's number. One that ends otherwise belongs to another call: then the
//! outcome is unknown, and the connection is out of step.

mod answer;
mod guarded;
mod message;
mod names;
pub(crate) mod pack;

use std::sync::LazyLock;

pub(crate) use answer::{HandsOver, Left, Queued, Released, Renewed, Stamp, Try, Unstamp, Wait};
pub(crate) use guarded::{Condition, Guarded, Writes, Written};
pub(crate) use message::Message;
pub(crate) use names::{Names, RESERVED, slot as slot_of};
pub(crate) use pack::Command;

/// One `.lua` file, packed as it stands at the beginning of a call.
#[derive(Debug)]
pub(crate) struct Script {
    by_hash: Vec<u8>,
    by_source: Vec<u8>,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));
    };
}

script!(TRY, "try.lua");
script!(WAIT, "wait.lua");
script!(RELEASE, "release.lua");
script!(LEAVE, "leave.lua");
script!(RENEW, "renew.lua");
script!(FORCE, "force.lua");
script!(PROBE, "probe.lua");
script!(STAMP, "stamp.lua");
script!(UNSTAMP, "unstamp.lua");

impl Script {
    fn new(source: &str) -> Script {
        let source = &whole(source);
        let hash = redis::Script::new(source).get_hash().to_owned();
        Script { by_hash: pack::bulks(&["EVALSHA", &hash]), by_source: pack::bulks(&["EVAL", source]) }
    }

    fn pack(&self, how: How, names: &Names, n: u64, args: &[Arg<'_>]) -> Command {
        let start = match how {
            How::Hash => &self.by_hash,
            How::Source => &self.by_source,
        };
        let mut out = Vec::with_capacity(start.len() + names.packed().len() + 256);
        // The verb, the body, the count of keys, four keys, n.
        pack::array(&mut out, 8 + args.len());
        out.extend_from_slice(start);
        out.extend_from_slice(names.packed());
        pack::number(&mut out, n);
        args.iter().for_each(|arg| arg.pack(&mut out));
        Command { bytes: out, n: Some(n) }
    }
}

/// A script with the parts that several share, which it names where they belong.
fn whole(source: &str) -> String {
    source
        .replace("--< mint.lua", include_str!("mint.lua").trim_end())
        .replace("--< pass_on.lua", include_str!("pass_on.lua").trim_end())
}

/// How a script is named in a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// EVALSHA: known to the server as a rule.
    Hash,
    /// EVAL: after NOSCRIPT.
    Source,
}

#[derive(Clone, Copy, Debug)]
enum Arg<'a> {
    Text(&'a str),
    Number(u64),
}

impl Arg<'_> {
    fn pack(self, out: &mut Vec<u8>) {
        match self {
            Arg::Text(text) => pack::bulk(out, text.as_bytes()),
            Arg::Number(n) => pack::number(out, n),
        }
    }
}

/// What a script is asked to do. Times are whole milliseconds, `not_after` server microseconds (0: no
/// limit).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb<'a> {
    /// Take the lock. `hint`: the answered fence is above it.
    Try {
        token: &'a str,
        ttl: u64,
        hint: u64,
        not_after: u64,
    },
    /// Take the lock, or wait for it in its queue. `beat`: for how long the waiter may be silent (0: no
    /// more waiting). `channel`: where it listens; empty: it looks by itself.
    Wait {
        token: &'a str,
        ttl: u64,
        hint: u64,
        not_after: u64,
        place: u64,
        beat: u64,
        channel: &'a str,
    },
    /// Take over the hold of this token, with a new fence; nothing if it is gone.
    Resume {
        token: &'a str,
        ttl: u64,
        not_after: u64,
    },
    Release {
        token: &'a str,
    },
    /// Take an acquisition back; with a fence, only that lease.
    Leave {
        token: &'a str,
        fence: Option<u64>,
        not_after: u64,
    },
    Renew {
        token: &'a str,
        ttl: u64,
        /// Compared with the stored one.
        fence: Option<u64>,
        /// Until then a lock that is gone is set again; 0: it stays gone.
        again: u64,
    },
    Force,
    /// Try every command that the scripts use, on a key that does not outlive the script.
    Probe,
    /// Take a lock of the timestamp protocol. `now`: ms by this machine's clock; `None`: by the server's.
    /// `least`: so many ms of the stamp must be left.
    Stamp {
        stamp: u64,
        unit: u64,
        now: Option<u64>,
        least: u64,
        expires: bool,
        not_after: u64,
    },
    /// Free one.
    Unstamp {
        stamp: u64,
        unit: u64,
        now: Option<u64>,
    },
}

/// One call of one script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) names: &'a Names,
    pub(crate) n: u64,
    pub(crate) verb: Verb<'a>,
}

impl Request<'_> {
    pub(crate) fn pack(&self, how: How) -> Command {
        use Arg::{Number, Text};
        let to = |script: &Script, args: &[Arg<'_>]| script.pack(how, self.names, self.n, args);
        match self.verb {
            Verb::Try { token, ttl, hint, not_after } => {
                to(&TRY, &[Text(token), Number(ttl), Number(hint), Number(not_after)])
            }
            Verb::Wait { token, ttl, hint, not_after, place, beat, channel } => to(
                &WAIT,
                &[
                    Text(token),
                    Number(ttl),
                    Number(hint),
                    Number(not_after),
                    Number(place),
                    Number(beat),
                    Text(channel),
                ],
            ),
            Verb::Resume { token, ttl, not_after } => {
                to(&TRY, &[Text(token), Number(ttl), Text("-1"), Number(not_after)])
            }
            Verb::Release { token } => to(&RELEASE, &[Text(token)]),
            Verb::Leave { token, fence, not_after } => {
                to(&LEAVE, &[Text(token), Text(&digits(fence)), Number(not_after)])
            }
            Verb::Renew { token, ttl, fence, again } => {
                to(&RENEW, &[Text(token), Number(ttl), Text(&digits(fence)), Number(again)])
            }
            Verb::Force => to(&FORCE, &[]),
            Verb::Probe => to(&PROBE, &[]),
            Verb::Stamp { stamp, unit, now, least, expires, not_after } => {
                let [stamp, unit, least, not_after] = [stamp, unit, least, not_after].map(Number);
                to(&STAMP, &[stamp, unit, now.map_or(Text(""), Number), least, Number(expires.into()), not_after])
            }
            Verb::Unstamp { stamp, unit, now } => {
                to(&UNSTAMP, &[Number(stamp), Number(unit), now.map_or(Text(""), Number)])
            }
        }
    }
}

/// Empty where there is none.
fn digits(fence: Option<u64>) -> String {
    let mut digits = String::new();
    if let Some(fence) = fence {
        crate::decimal::push(&mut digits, fence);
    }
    digits
}

/// What an answer says before its number. Only of an answer that the command owns.
pub(crate) fn without_number(answer: &redis::Value) -> Option<&str> {
    Some(pack::text_of(answer)?.rsplit_once(' ')?.0)
}
