//! Commands on lists, sets, hashes, sorted sets and streams.

use std::cmp::Ordering;

use super::super::{
    engine::State,
    keyspace::{Hash, List, Set, SortedSet, Stream},
    resp::{Reply, Word},
};
use super::{Command, Outcome, data, is, positive, range, syntax, wrong_count};

pub(super) const COMMANDS: [Command; 23] = [
    data("lpush", -3, |state, words| push(state, words, List::push_front)),
    data("rpush", -3, |state, words| push(state, words, List::push_back)),
    data("lpop", -2, |state, words| pop(state, words, List::pop_front)),
    data("rpop", -2, |state, words| pop(state, words, List::pop_back)),
    data("llen", 2, |state, words| {
        Ok(Reply::count(state.keyspace.find::<List>(&words[1])?.map_or(0, |list| list.len())))
    }),
    data("lrange", 4, lrange),
    data("sadd", -3, sadd),
    data("hset", -4, hset),
    data("hget", 3, |state, words| {
        Ok(Reply::or_nil(hash(state, words)?.iter().find(|(field, _)| *field == words[2]).map(|(_, value)| value)))
    }),
    data("hdel", -3, hdel),
    data("hexists", 3, |state, words| {
        let there = hash(state, words)?.iter().any(|(field, _)| *field == words[2]);
        Ok(Reply::Int(there.into()))
    }),
    data("hlen", 2, |state, words| Ok(Reply::count(hash(state, words)?.len()))),
    data("hvals", 2, |state, words| Ok(Reply::bulks(hash(state, words)?.iter().map(|(_, value)| value)))),
    data("hgetall", 2, |state, words| {
        Ok(Reply::bulks(hash(state, words)?.iter().flat_map(|(field, value)| [field, value])))
    }),
    data("zadd", -4, zadd),
    data("zrem", -3, zrem),
    data("zcard", 2, |state, words| Ok(Reply::count(sorted(state, words)?.len()))),
    data("zscore", 3, |state, words| {
        let found = sorted(state, words)?.iter().find(|(_, member)| *member == words[2]);
        Ok(Reply::or_nil(found.map(|(score, _)| write_score(*score))))
    }),
    data("zrank", 3, |state, words| {
        let place = sorted(state, words)?.iter().position(|(_, member)| *member == words[2]);
        Ok(place.map_or(Reply::Nil, Reply::count))
    }),
    data("zrange", -4, zrange),
    data("zpopmin", -2, zpopmin),
    data("xadd", -5, xadd),
    data("xlen", 2, |state, words| {
        Ok(Reply::count(state.keyspace.find::<Stream>(&words[1])?.map_or(0, |stream| stream.len())))
    }),
];

fn push(state: &mut State, words: &[Word], push: fn(&mut List, Word)) -> Outcome {
    let list = state.keyspace.make::<List>(&words[1])?;
    words[2..].iter().for_each(|word| push(list, word.clone()));
    Ok(Reply::count(list.len()))
}

fn pop(state: &mut State, words: &[Word], pop: fn(&mut List) -> Option<Word>) -> Outcome {
    let name = if is(&words[0], "lpop") { "lpop" } else { "rpop" };
    let key = &words[1];
    match &words[2..] {
        [] => Ok(Reply::or_nil(state.keyspace.change(key, pop)?.flatten())),
        [count] => {
            let count = positive(count)?;
            let popped = state.keyspace.change(key, |list| Reply::bulks((0..count).map_while(|_| pop(list))))?;
            Ok(popped.unwrap_or(Reply::NilArray))
        }
        _ => Err(wrong_count(name)),
    }
}

fn lrange(state: &mut State, words: &[Word]) -> Outcome {
    let length = state.keyspace.find::<List>(&words[1])?.map_or(0, |list| list.len());
    let range = range(&words[2], &words[3], length)?;
    let list = state.keyspace.find::<List>(&words[1])?;
    Ok(Reply::bulks(list.into_iter().flat_map(|list| list.range(range.clone()))))
}

fn sadd(state: &mut State, words: &[Word]) -> Outcome {
    let set = state.keyspace.make::<Set>(&words[1])?;
    Ok(Reply::count(words[2..].iter().filter(|&word| set.insert(word.clone())).count()))
}

fn hash<'a>(state: &'a mut State, words: &[Word]) -> Result<&'a [(Word, Word)], String> {
    Ok(state.keyspace.find::<Hash>(&words[1])?.map_or(&[], |hash| hash.as_slice()))
}

fn hset(state: &mut State, words: &[Word]) -> Outcome {
    let (pairs, []) = words[2..].as_chunks::<2>() else { return Err(wrong_count("hset")) };
    let hash = state.keyspace.make::<Hash>(&words[1])?;
    let before = hash.len();
    for [field, value] in pairs {
        match hash.iter_mut().find(|(known, _)| known == field) {
            Some((_, old)) => old.clone_from(value),
            None => hash.push((field.clone(), value.clone())),
        }
    }
    Ok(Reply::count(hash.len() - before))
}

fn hdel(state: &mut State, words: &[Word]) -> Outcome {
    let removed = state.keyspace.change(&words[1], |hash: &mut Hash| {
        let before = hash.len();
        hash.retain(|(field, _)| !words[2..].contains(field));
        before - hash.len()
    })?;
    Ok(Reply::count(removed.unwrap_or(0)))
}

fn sorted<'a>(state: &'a mut State, words: &[Word]) -> Result<&'a [(f64, Word)], String> {
    Ok(state.keyspace.find::<SortedSet>(&words[1])?.map_or(&[], |sorted| sorted.as_slice()))
}

fn read_score(word: &[u8]) -> Result<f64, String> {
    let score = str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    score.filter(|score: &f64| !score.is_nan()).ok_or_else(|| "ERR value is not a valid float".to_owned())
}

/// Places in a queue are whole numbers below 2^53, which every Redis writes alike; of other numbers up to
/// 7.0 writes seventeen digits, and later ones as few as say it, as here.
fn write_score(score: f64) -> String {
    if score.is_finite() && score.abs() >= 1e17 {
        let text = format!("{score:e}");
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    score.to_string()
}

fn zadd(state: &mut State, words: &[Word]) -> Outcome {
    let start = 2 + words[2..].iter().take_while(|&word| is(word, "nx") || is(word, "xx")).count();
    let given = |name| words[2..start].iter().any(|word| is(word, name));
    let (pairs, []) = words[start..].as_chunks::<2>() else { return syntax() };
    if pairs.is_empty() {
        return syntax();
    }
    if given("nx") && given("xx") {
        return Err("ERR XX and NX options at the same time are not compatible".to_owned());
    }
    let scores: Vec<f64> = pairs.iter().map(|[score, _]| read_score(score)).collect::<Result<_, _>>()?;
    let sorted = state.keyspace.make::<SortedSet>(&words[1])?;
    let before = sorted.len();
    for (score, [_, member]) in scores.into_iter().zip(pairs) {
        let known = sorted.iter().position(|(_, other)| other == member);
        if if known.is_some() { given("nx") } else { given("xx") } {
            continue;
        }
        known.map(|place| sorted.remove(place));
        let place = sorted.partition_point(|(other, name)| order(*other, score).then_with(|| name.cmp(member)).is_lt());
        sorted.insert(place, (score, member.clone()));
    }
    let added = sorted.len() - before;
    // XX on a free key makes none.
    state.keyspace.change(&words[1], |_: &mut SortedSet| ())?;
    Ok(Reply::count(added))
}

/// No score is NaN.
fn order(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other).unwrap_or(Ordering::Equal)
}

fn zrem(state: &mut State, words: &[Word]) -> Outcome {
    let removed = state.keyspace.change(&words[1], |sorted: &mut SortedSet| {
        let before = sorted.len();
        sorted.retain(|(_, member)| !words[2..].contains(member));
        before - sorted.len()
    })?;
    Ok(Reply::count(removed.unwrap_or(0)))
}

fn pairs<'a>(items: impl Iterator<Item = &'a (f64, Word)>, with_scores: bool) -> Reply {
    let words = items.flat_map(|(score, member)| {
        let score = with_scores.then(|| write_score(*score).into_bytes());
        [Some(member.clone()), score].into_iter().flatten()
    });
    Reply::bulks(words)
}

/// By rank only.
fn zrange(state: &mut State, words: &[Word]) -> Outcome {
    let (mut backwards, mut with_scores) = (false, false);
    for option in &words[4..] {
        match option {
            word if is(word, "withscores") => with_scores = true,
            word if is(word, "rev") => backwards = true,
            _ => return syntax(),
        }
    }
    let sorted = sorted(state, words)?;
    let range = range(&words[2], &words[3], sorted.len())?;
    if backwards {
        return Ok(pairs(sorted.iter().rev().skip(range.start).take(range.len()), with_scores));
    }
    Ok(pairs(sorted[range].iter(), with_scores))
}

fn zpopmin(state: &mut State, words: &[Word]) -> Outcome {
    let count = match &words[2..] {
        [] => 1,
        [count] => positive(count)?,
        _ => return syntax(),
    };
    let popped = state.keyspace.change(&words[1], |sorted: &mut SortedSet| {
        let popped: Vec<_> = sorted.drain(..count.min(sorted.len())).collect();
        pairs(popped.iter(), true)
    })?;
    Ok(popped.unwrap_or_else(|| Reply::Array(Vec::new())))
}

/// With a number of its own or `*`; nothing reads it: a stream is only a type that is no lock.
fn xadd(state: &mut State, words: &[Word]) -> Outcome {
    if words.len().is_multiple_of(2) {
        return Err(wrong_count("xadd"));
    }
    let now = u64::try_from(state.keyspace.now()).unwrap_or(0);
    let stream = state.keyspace.find::<Stream>(&words[1])?;
    let last = stream.and_then(|stream| stream.last().map(|(id, _)| *id)).unwrap_or_default();
    let id = if is(&words[2], "*") {
        (now.max(last.0), if now > last.0 { 0 } else { last.1 + 1 })
    } else {
        stream_id(&words[2])?
    };
    if id == (0, 0) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".to_owned());
    }
    if id <= last {
        return Err("ERR The ID specified in XADD is equal or smaller than the target stream top item".to_owned());
    }
    state.keyspace.make::<Stream>(&words[1])?.push((id, words[3..].to_vec()));
    Ok(Reply::bulk(format!("{}-{}", id.0, id.1)))
}

fn stream_id(word: &[u8]) -> Result<(u64, u64), String> {
    let text = str::from_utf8(word).ok();
    let id = text.and_then(|text| {
        let (millis, sequence) = text.split_once('-').unwrap_or((text, "0"));
        Some((millis.parse().ok()?, sequence.parse().ok()?))
    });
    id.ok_or_else(|| "ERR Invalid stream ID specified as stream command argument".to_owned())
}
