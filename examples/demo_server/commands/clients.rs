//! Commands about connections: what they listen to, who they are, and the server itself.

use std::time::{SystemTime, UNIX_EPOCH};

use super::super::{
    engine::{State, VERSION},
    resp::{Reply, Word},
};
use super::{Command, Outcome, client, data, integer, is, keys::matches, syntax, text, wrong_count};

pub(super) const COMMANDS: [Command; 18] = [
    data("time", 1, time),
    // There is one database.
    data("select", 2, |_, words| match integer(&words[1])? {
        0 => Ok(Reply::ok()),
        _ => Err("ERR DB index is out of range".to_owned()),
    }),
    data("ping", -1, ping),
    data("echo", 2, |_, words| Ok(Reply::bulk(&words[1]))),
    data("publish", 3, |state, words| Ok(Reply::count(state.publish(&words[1], &words[2])))),
    data("pubsub|numsub", -2, |state, words| {
        let counts = words[2..].iter().flat_map(|name| [Reply::bulk(name), Reply::count(state.listeners(name))]);
        Ok(Reply::Array(counts.collect()))
    }),
    data("pubsub|channels", -2, channels),
    data("info", -1, info),
    client("subscribe", -2, subscribe),
    client("unsubscribe", -1, unsubscribe),
    client("auth", -2, auth),
    client("quit", -1, |state, _| {
        state.end_after_reply(state.current);
        Ok(Reply::ok())
    }),
    client("client|id", 2, |state, _| Ok(Reply::Int(state.current.cast_signed()))),
    client("client|getname", 2, |state, _| {
        let name = &state.client().name;
        Ok(if name.is_empty() { Reply::Nil } else { Reply::bulk(name) })
    }),
    client("client|setname", 3, set_name),
    // What a library says of itself is not kept.
    client("client|setinfo", 4, |_, _| Ok(Reply::ok())),
    client("client|list", -2, list),
    client("client|kill", -4, kill),
];

fn time(_: &mut State, _: &[Word]) -> Outcome {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Reply::bulks([now.as_secs().to_string(), now.subsec_micros().to_string()]))
}

fn ping(state: &mut State, words: &[Word]) -> Outcome {
    let text = match &words[1..] {
        [] => None,
        [text] => Some(text),
        _ => return Err(wrong_count("ping")),
    };
    if state.client().channels.is_empty() {
        return Ok(text.map_or_else(|| Reply::Status("PONG".to_owned()), Reply::bulk));
    }
    Ok(Reply::bulks([b"pong".as_slice(), text.map_or(b"", Vec::as_slice)]))
}

fn channels(state: &mut State, words: &[Word]) -> Outcome {
    let wanted = |name: &&Word| words.get(2).is_none_or(|pattern| matches(pattern, name));
    Ok(Reply::bulks(state.channels().into_iter().filter(wanted)))
}

fn subscribe(state: &mut State, words: &[Word]) -> Outcome {
    let own = &mut state.client().channels;
    let answers = words[1..].iter().map(|name| {
        own.insert(name.clone());
        Reply::Array(vec![Reply::bulk("subscribe"), Reply::bulk(name), Reply::count(own.len())])
    });
    Ok(Reply::Several(answers.collect()))
}

fn unsubscribe(state: &mut State, words: &[Word]) -> Outcome {
    let own = &mut state.client().channels;
    let names: Vec<Word> = if words.len() > 1 { words[1..].to_vec() } else { own.iter().cloned().collect() };
    let mut answer = |name: Option<&Word>| {
        name.map(|name| own.remove(name));
        Reply::Array(vec![Reply::bulk("unsubscribe"), Reply::or_nil(name), Reply::count(own.len())])
    };
    if names.is_empty() {
        return Ok(answer(None));
    }
    Ok(Reply::Several(names.iter().map(|name| answer(Some(name))).collect()))
}

/// There is no password; the user without one may say any.
fn auth(_: &mut State, words: &[Word]) -> Outcome {
    match &words[1..] {
        [_] => Err("ERR AUTH <password> called without any password configured for the default user. \
                    Are you sure your configuration is correct?"
            .to_owned()),
        [user, _] if user == b"default" => Ok(Reply::ok()),
        [_, _] => Err("WRONGPASS invalid username-password pair or user is disabled.".to_owned()),
        _ => syntax(),
    }
}

fn set_name(state: &mut State, words: &[Word]) -> Outcome {
    if !words[2].iter().all(u8::is_ascii_graphic) {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.".to_owned());
    }
    state.client().name.clone_from(&words[2]);
    Ok(Reply::ok())
}

/// `normal` or `pubsub`, as CLIENT LIST and CLIENT KILL take it.
fn is_of(word: &[u8], listens: bool) -> bool {
    is(word, if listens { "pubsub" } else { "normal" })
}

fn list(state: &mut State, words: &[Word]) -> Outcome {
    let kind = match &words[2..] {
        [] => None,
        [option, kind] if is(option, "type") => Some(kind),
        _ => return syntax(),
    };
    let mut lines = String::new();
    for (id, client) in &state.clients {
        if kind.is_none_or(|kind| is_of(kind, !client.channels.is_empty())) {
            lines += &format!("id={id} name={} db=0 sub={}\n", text(&client.name), client.channels.len());
        }
    }
    Ok(Reply::bulk(lines))
}

/// By ID or by TYPE; never the one that asks.
fn kill(state: &mut State, words: &[Word]) -> Outcome {
    let [option, value] = &words[2..] else { return syntax() };
    let id = integer(value).ok().filter(|id| *id > 0).map(i64::cast_unsigned);
    if is(option, "id") && id.is_none() {
        return Err("ERR client-id should be greater than 0".to_owned());
    }
    let mut wanted: Vec<u64> = match option {
        word if is(word, "id") => id.into_iter().filter(|id| state.clients.contains_key(id)).collect(),
        word if is(word, "type") => {
            let of_type = state.clients.iter().filter(|(_, client)| is_of(value, !client.channels.is_empty()));
            of_type.map(|(id, _)| *id).collect()
        }
        _ => return syntax(),
    };
    wanted.retain(|id| *id != state.current);
    wanted.iter().for_each(|id| state.end(*id));
    Ok(Reply::count(wanted.len()))
}

fn info(state: &mut State, words: &[Word]) -> Outcome {
    let asked = |section: &str, by_default: bool| match &words[1..] {
        [] => by_default,
        some => some.iter().any(|word| is(word, section) || is(word, "all")),
    };
    let mut out = String::new();
    if asked("server", true) {
        out += &format!(
            "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nserver_name:distlock demo server\r\n"
        );
    }
    if asked("clients", true) {
        out += &format!("# Clients\r\nconnected_clients:{}\r\n", state.clients.len());
    }
    if asked("replication", true) {
        out += "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n";
    }
    if asked("commandstats", false) {
        out += "# Commandstats\r\n";
        state.calls.iter().for_each(|(name, calls)| out += &format!("cmdstat_{name}:calls={calls},usec=0\r\n"));
    }
    Ok(Reply::bulk(out))
}
