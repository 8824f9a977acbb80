//! The commands by name, with the number of words that each wants, and the words that they share.
//! Called by the engine and by scripts.

mod clients;
mod collections;
mod keys;
mod strings;

use super::{
    engine::State,
    lua::Scripts,
    resp::{Reply, Word},
};

/// A reply, or the text of an error.
pub(crate) type Outcome = Result<Reply, String>;

pub(crate) struct Command {
    /// In lower case; `client|id` for a subcommand.
    pub(crate) name: &'static str,
    /// How many words with the name; if negative: at least so many.
    arity: i64,
    pub(crate) run: Run,
}

#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// On the data; from scripts, too.
    Data(fn(&mut State, &[Word]) -> Outcome),
    /// About the connections; not from scripts.
    Client(fn(&mut State, &[Word]) -> Outcome),
    Script(fn(&mut Scripts, &[Word]) -> Outcome),
}

const fn data(name: &'static str, arity: i64, run: fn(&mut State, &[Word]) -> Outcome) -> Command {
    Command { name, arity, run: Run::Data(run) }
}

const fn client(name: &'static str, arity: i64, run: fn(&mut State, &[Word]) -> Outcome) -> Command {
    Command { name, arity, run: Run::Client(run) }
}

const fn script(name: &'static str, arity: i64, run: fn(&mut Scripts, &[Word]) -> Outcome) -> Command {
    Command { name, arity, run: Run::Script(run) }
}

const SCRIPTING: [Command; 5] = [
    script("eval", -3, Scripts::eval),
    script("evalsha", -3, Scripts::evalsha),
    script("script|load", 3, Scripts::load),
    script("script|exists", -3, Scripts::exists),
    script("script|flush", -2, Scripts::flush),
];

/// Commands that are nothing without a second word.
const CONTAINERS: [&str; 3] = ["client", "pubsub", "script"];

pub(crate) enum NotFound {
    Unknown(String),
    WrongCount(String),
}

/// The command of a request, which has a first word.
pub(crate) fn find(words: &[Word]) -> Result<&'static Command, NotFound> {
    static TABLES: [&[Command]; 5] =
        [&strings::COMMANDS, &SCRIPTING, &keys::COMMANDS, &collections::COMMANDS, &clients::COMMANDS];
    let mut name = text(&words[0]).to_ascii_lowercase();
    let container = CONTAINERS.contains(&name.as_str());
    if container && words.len() == 1 {
        return Err(NotFound::WrongCount(name));
    }
    if container {
        name = format!("{name}|{}", text(&words[1]).to_ascii_lowercase());
    }
    let Some(command) = TABLES.iter().copied().flatten().find(|command| command.name == name) else {
        return Err(NotFound::Unknown(unknown(words, container)));
    };
    let count = i64::try_from(words.len()).unwrap_or(i64::MAX);
    let fits = if command.arity < 0 { count >= -command.arity } else { count == command.arity };
    if fits { Ok(command) } else { Err(NotFound::WrongCount(name)) }
}

fn unknown(words: &[Word], container: bool) -> String {
    let name = text(&words[0]);
    if container {
        return format!("ERR unknown subcommand '{}'. Try {} HELP.", text(&words[1]), name.to_ascii_uppercase());
    }
    let args: String = words[1..].iter().map(|word| format!("'{}' ", text(word))).collect();
    format!("ERR unknown command '{name}', with args beginning with: {args}")
}

pub(crate) fn wrong_count(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn syntax<T>() -> Result<T, String> {
    Err("ERR syntax error".to_owned())
}

/// A whole number in the one way of writing it: no `+1`, no `01`, no space.
pub(crate) fn integer(word: &[u8]) -> Result<i64, String> {
    let number = str::from_utf8(word).ok().and_then(|text| text.parse::<i64>().ok());
    let plain = number.filter(|number| number.to_string().as_bytes() == word);
    plain.ok_or_else(|| "ERR value is not an integer or out of range".to_owned())
}

/// A number of things to take.
fn positive(word: &[u8]) -> Result<usize, String> {
    let number = integer(word).ok().and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| "ERR value is out of range, must be positive".to_owned())
}

/// The part of `length` things from `start` to `stop`, which count from the end if negative.
fn range(start: &[u8], stop: &[u8], length: usize) -> Result<std::ops::Range<usize>, String> {
    let count = i64::try_from(length).unwrap_or(i64::MAX);
    let place = |n: i64| if n < 0 { n.saturating_add(count).max(0) } else { n.min(count) };
    let (start, stop) = (integer(start)?, integer(stop)?);
    let end = if stop < -count { 0 } else { place(stop).saturating_add(1).min(count) };
    let as_index = |n: i64| usize::try_from(n).unwrap_or(0);
    let start = as_index(place(start));
    Ok(start..as_index(end).max(start))
}
