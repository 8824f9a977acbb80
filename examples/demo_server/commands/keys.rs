//! Commands on keys of any type: their being there, their names, their deadlines.

use super::super::{
    engine::State,
    resp::{Reply, Word},
};
use super::{Command, Outcome, data, integer, is, strings::deadline, syntax, text};

pub(super) const COMMANDS: [Command; 13] = [
    data("del", -2, |state, words| count(words, |key| state.keyspace.remove(key))),
    data("exists", -2, |state, words| count(words, |key| state.keyspace.holds(key))),
    data("type", 2, |state, words| Ok(Reply::Status(state.keyspace.type_of(&words[1]).to_owned()))),
    data("rename", 3, rename),
    data("renamenx", 3, rename),
    data("pttl", 2, |state, words| Ok(Reply::Int(left(state, &words[1])))),
    data("ttl", 2, |state, words| {
        let left = left(state, &words[1]);
        Ok(Reply::Int(if left < 0 { left } else { left.saturating_add(500) / 1000 }))
    }),
    data("pexpire", -3, |state, words| expire(state, words, 1)),
    data("expire", -3, |state, words| expire(state, words, 1000)),
    data("persist", 2, |state, words| {
        let had = state.keyspace.deadline(&words[1]).and_then(Option::take);
        Ok(Reply::Int(had.is_some().into()))
    }),
    data("keys", 2, |state, words| Ok(Reply::bulks(state.keyspace.keys().filter(|key| matches(&words[1], key))))),
    data("dbsize", 1, |state, _| Ok(Reply::count(state.keyspace.keys().count()))),
    data("flushall", -1, flush),
];

fn count(words: &[Word], mut is_one: impl FnMut(&[u8]) -> bool) -> Outcome {
    Ok(Reply::count(words[1..].iter().filter(|key| is_one(key)).count()))
}

fn rename(state: &mut State, words: &[Word]) -> Outcome {
    let (from, to) = (&words[1], &words[2]);
    let keeps = is(&words[0], "renamenx");
    if !state.keyspace.holds(from) {
        return Err("ERR no such key".to_owned());
    }
    if keeps && state.keyspace.holds(to) {
        return Ok(Reply::Int(0));
    }
    state.keyspace.rename(from, to);
    Ok(if keeps { Reply::Int(1) } else { Reply::ok() })
}

/// As PTTL says it: −2 no key, −1 no deadline.
fn left(state: &mut State, key: &[u8]) -> i64 {
    let now = state.keyspace.now();
    state.keyspace.deadline(key).map_or(-2, |deadline| deadline.map_or(-1, |deadline| deadline - now))
}

fn expire(state: &mut State, words: &[Word], unit: i64) -> Outcome {
    let (now, key) = (state.keyspace.now(), &words[1]);
    let name = text(&words[0]).to_ascii_lowercase();
    let time = integer(&words[2])?;
    if let Some(option) = words.get(3) {
        return Err(format!("ERR Unsupported option {}", text(option)));
    }
    let new = deadline(now, time, unit).ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))?;
    if new <= now {
        return Ok(Reply::Int(state.keyspace.remove(key).into()));
    }
    let Some(deadline) = state.keyspace.deadline(key) else { return Ok(Reply::Int(0)) };
    *deadline = Some(new);
    Ok(Reply::Int(1))
}

fn flush(state: &mut State, words: &[Word]) -> Outcome {
    if words.len() > 2 || words.get(1).is_some_and(|how| !is(how, "sync") && !is(how, "async")) {
        return syntax();
    }
    state.keyspace.clear();
    Ok(Reply::ok())
}

/// A name against a pattern of `*`, `?` and plain characters.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((b'*', after)), _) => (0..=name.len()).any(|skipped| matches(after, &name[skipped..])),
        (Some((b'?', after)), Some((_, rest))) => matches(after, rest),
        (Some((wanted, after)), Some((found, rest))) => wanted == found && matches(after, rest),
        (Some(_), None) => false,
    }
}
