//! Commands on strings.

use super::super::{
    engine::State,
    keyspace::{Keyspace, Text},
    resp::{Reply, Word},
};
use super::{Command, Outcome, data, integer, is, syntax};

pub(super) const COMMANDS: [Command; 4] = [
    data("get", 2, get),
    data("set", -3, set),
    data("incr", 2, |state, words| add(state, &words[1], 1)),
    data("incrby", 3, |state, words| add(state, &words[1], integer(&words[2])?)),
];

fn get(state: &mut State, words: &[Word]) -> Outcome {
    Ok(Reply::or_nil(state.keyspace.find::<Text>(&words[1])?))
}

/// What may follow key and value of SET.
#[derive(Default)]
struct Options {
    /// NX: only a free key; XX: only one that is there.
    only: Option<bool>,
    keep_ttl: bool,
    answer_old: bool,
    deadline: Option<i64>,
}

impl Options {
    fn parse(words: &[Word], now: i64) -> Result<Options, String> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let ends = options.keep_ttl || options.deadline.is_some();
            if (is(word, "nx") || is(word, "xx")) && options.only.is_none_or(|xx| xx == is(word, "xx")) {
                options.only = Some(is(word, "xx"));
            } else if is(word, "get") {
                options.answer_old = true;
            } else if is(word, "keepttl") && !ends {
                options.keep_ttl = true;
            } else if (is(word, "px") || is(word, "ex")) && !ends {
                let Some(time) = words.next() else { return syntax() };
                let unit = if is(word, "ex") { 1000 } else { 1 };
                let time = integer(time)?;
                let deadline = deadline(now, time, unit).filter(|_| time > 0);
                options.deadline = Some(deadline.ok_or("ERR invalid expire time in 'set' command")?);
            } else {
                return syntax();
            }
        }
        Ok(options)
    }
}

/// Redis counts from 1970 and refuses what does not fit then.
pub(super) fn deadline(now: i64, time: i64, unit: i64) -> Option<i64> {
    const FROM_1970: i64 = 1 << 41;
    let time = time.checked_mul(unit)?;
    time.checked_add(FROM_1970)?;
    now.checked_add(time)
}

fn set(state: &mut State, words: &[Word]) -> Outcome {
    let keyspace: &mut Keyspace = &mut state.keyspace;
    let key = &words[1];
    let options = Options::parse(&words[3..], keyspace.now())?;
    let old = if options.answer_old { Some(Reply::or_nil(keyspace.find::<Text>(key)?)) } else { None };
    if options.only.is_some_and(|there| there != keyspace.holds(key)) {
        return Ok(old.unwrap_or(Reply::Nil));
    }
    let kept = if options.keep_ttl { keyspace.deadline(key).and_then(|deadline| *deadline) } else { None };
    keyspace.put(key, words[2].clone(), kept.or(options.deadline));
    Ok(old.unwrap_or_else(Reply::ok))
}

fn add(state: &mut State, key: &[u8], more: i64) -> Outcome {
    let old = state.keyspace.find::<Text>(key)?.map_or(Ok(0), |text| integer(text))?;
    let sum = old.checked_add(more).ok_or("ERR increment or decrement would overflow")?;
    *state.keyspace.make::<Text>(key)? = sum.to_string().into_bytes();
    Ok(Reply::Int(sum))
}
