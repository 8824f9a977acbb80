//! I4: nothing deletes, renews or overwrites another's token. The referee follows what `MONITOR` tells
//! of every command that a server executes, inside of scripts too, and knows whose each lock is.
//!
//! Who acts is known by the token: a script's second argument after its keys. A command outside of
//! scripts is its connection's, and acts rightly on what that connection has set. An operator is a
//! script that says so.

use std::collections::HashMap;

use super::{Flag, Referee};

/// How a script begins that may do what it likes.
pub(crate) const OPERATOR: &str = "-- operator\n";

#[derive(Clone, PartialEq, Eq, Debug)]
enum Actor {
    Token(String),
    Connection(String),
    Operator,
}

#[derive(Debug)]
struct Owner {
    token: String,
    by: Actor,
    /// By the server's clock, µs; `None`: for ever.
    until: Option<u64>,
}

/// Whose each lock is, as far as the server's commands were told.
#[derive(Debug)]
pub(crate) struct Ownership {
    locks: Vec<String>,
    owners: HashMap<String, Owner>,
    /// Who runs the script whose commands come next, and since when: for a script time stands still.
    script: (Actor, u64),
    pub(crate) flags: Vec<Flag>,
}

/// The server rounds, and the lines are stamped a little later than it looks.
const ROUNDING: u64 = 5_000;

impl Ownership {
    pub(crate) fn of(locks: &[&str]) -> Ownership {
        let locks = locks.iter().map(|&lock| lock.to_owned()).collect();
        Ownership { locks, owners: HashMap::new(), script: (Actor::Operator, 0), flags: Vec::new() }
    }

    /// The server starts empty.
    pub(crate) fn forget(&mut self) {
        self.owners.clear();
    }

    /// The next line of `MONITOR`.
    pub(crate) fn tell(&mut self, line: &str) {
        let Some((at, from, words)) = parse(line) else { return };
        let verb = words[0].to_ascii_uppercase();
        match verb.as_str() {
            "EVAL" | "EVALSHA" => self.script = (actor(&words, from), at),
            "FLUSHALL" | "FLUSHDB" => self.forget(),
            _ if from.ends_with("lua") => {
                let (actor, at) = self.script.clone();
                self.act(&actor, at, &verb, &words);
            }
            _ => self.act(&Actor::Connection(from.to_owned()), at, &verb, &words),
        }
    }

    fn act(&mut self, actor: &Actor, at: u64, verb: &str, words: &[String]) {
        let Some(key) = words.get(1).filter(|key| self.locks.contains(key)).cloned() else { return };
        let number = |i: usize| words.get(i).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match verb {
            "SET" | "SETNX" | "GETSET" => {
                let only_if_free = verb == "SETNX" || words.iter().skip(3).any(|word| word.eq_ignore_ascii_case("NX"));
                if only_if_free && self.stands(&key, at) {
                    return;
                }
                self.check(actor, at, verb, &key);
                let px = words.iter().position(|word| word.eq_ignore_ascii_case("PX"));
                let until = px.map(|px| at + number(px + 1) * 1000);
                self.owners.insert(key, Owner { token: words[2].clone(), by: actor.clone(), until });
            }
            "DEL" | "UNLINK" | "RENAME" => {
                self.check(actor, at, verb, &key);
                self.owners.remove(&key);
            }
            "PEXPIRE" | "PERSIST" => {
                self.check(actor, at, verb, &key);
                let until = (verb == "PEXPIRE").then(|| at + number(2) * 1000);
                // Nothing brings back what is over.
                if self.stands(&key, at)
                    && let Some(owner) = self.owners.get_mut(&key)
                {
                    owner.until = until;
                }
            }
            _ => {}
        }
    }

    fn stands(&self, key: &str, at: u64) -> bool {
        self.owners.get(key).is_some_and(|owner| owner.until.is_none_or(|until| at + ROUNDING < until))
    }

    fn check(&mut self, actor: &Actor, at: u64, verb: &str, key: &str) {
        if !self.stands(key, at) {
            return;
        }
        let owner = &self.owners[key];
        let its_own = match actor {
            Actor::Operator => true,
            Actor::Token(token) => *token == owner.token,
            Actor::Connection(_) => *actor == owner.by,
        };
        if !its_own {
            let what = format!("{verb} of {key:?} by {actor:?}, at {at} µs, while it was {owner:?}");
            self.flags.push(Flag::new(Referee::I4, what));
        }
    }
}

/// Who runs this script.
fn actor(words: &[String], from: &str) -> Actor {
    if words.get(1).is_some_and(|source| source.starts_with(OPERATOR)) {
        return Actor::Operator;
    }
    let keys = words.get(2).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
    words.get(4 + keys).map_or_else(|| Actor::Connection(from.to_owned()), |token| Actor::Token(token.clone()))
}

/// When, µs; from where; and the words of a line as `1764.123456 [0 lua] "DEL" "k"`.
fn parse(line: &str) -> Option<(u64, &str, Vec<String>)> {
    let (time, rest) = line.split_once(" [")?;
    let (from, rest) = rest.split_once("] ")?;
    let at = time.replace('.', "").parse().ok()?;
    let words = words(rest);
    (!words.is_empty()).then_some((at, from, words))
}

fn words(text: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), text.chars());
    while rest.any(|c| c == '"') {
        let mut word = String::new();
        loop {
            match rest.next() {
                None | Some('"') => break,
                Some('\\') => match rest.next() {
                    Some('n') => word.push('\n'),
                    Some('r') => word.push('\r'),
                    Some('t') => word.push('\t'),
                    Some(c) => word.push(c),
                    None => break,
                },
                Some(c) => word.push(c),
            }
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is objected to after these, a tenth of a second apart.
    fn flags(lines: &[&str]) -> usize {
        let mut ownership = Ownership::of(&["k"]);
        for (i, line) in lines.iter().enumerate() {
            ownership.tell(&format!("1764000000.{i}00000 [0 {line}"));
        }
        ownership.flags.len()
    }

    const TAKE_A: [&str; 2] =
        [r#"1.1.1.1:1] "EVALSHA" "abc" "1" "k" "7" "a" "1000""#, r#"lua] "SET" "k" "a" "PX" "1000""#];

    fn after_a(lines: &[&str]) -> usize {
        flags(&[&TAKE_A, lines].concat())
    }

    #[test]
    fn a_script_may_touch_its_own_token_alone() {
        for (token, wrong) in [("a", 0), ("b", 1)] {
            let script = format!(r#"1.1.1.1:2] "EVAL" "-- release\nx" "1" "k" "8" "{token}""#);
            for act in [r#"lua] "DEL" "k""#, r#"lua] "PEXPIRE" "k" "900""#, r#"lua] "SET" "k" "b""#] {
                assert_eq!(after_a(&[&script, act]), wrong, "{token} {act}");
            }
            assert_eq!(after_a(&[&script, r#"lua] "RENAMENX" "k" "k""#, r#"lua] "DEL" "other""#]), 0);
        }
    }

    #[test]
    fn a_connection_may_touch_what_it_has_set() {
        let set = r#"1.1.1.1:5] "SET" "k" "x" "NX" "PX" "1000""#;
        assert_eq!(flags(&[set, r#"1.1.1.1:5] "del" "k""#]), 0);
        assert_eq!(flags(&[set, r#"1.1.1.1:6] "del" "k""#]), 1);
        // Refused: it was taken.
        assert_eq!(after_a(&[set, r#"1.1.1.1:5] "DEL" "k""#]), 1);
        assert_eq!(flags(&[set, r#"1.1.1.1:6] "GETSET" "k" "y""#]), 1);
    }

    #[test]
    fn nobody_owns_what_is_over_deleted_or_flushed() {
        let foreign = r#"1.1.1.1:9] "DEL" "k""#;
        assert_eq!(after_a(&[foreign]), 1);
        assert_eq!(after_a(&[r#"1.1.1.1:3] "FLUSHALL""#, foreign]), 0);
        let other = r#"1.1.1.1:3] "GET" "k""#;
        assert_eq!(flags(&[&TAKE_A[..], &[other; 7], &[foreign]].concat()), 1, "it stands still");
        let brief = [TAKE_A[0], r#"lua] "SET" "k" "a" "PX" "250""#];
        assert_eq!(flags(&[&brief[..], &[other, foreign]].concat()), 0, "it is over");
        let persisted = r#"1.1.1.1:1] "PERSIST" "k""#;
        assert_eq!(flags(&[&brief[..], &[other, persisted, foreign]].concat()), 0, "it is over for good");
        let renewed = [TAKE_A[0], r#"lua] "PEXPIRE" "k" "1000""#];
        assert_eq!(flags(&[&brief[..], &renewed, &[other, foreign]].concat()), 1, "it was renewed");
    }

    #[test]
    fn an_operator_may_do_what_he_likes() {
        assert_eq!(after_a(&[r#"1.1.1.1:4] "EVAL" "-- operator\nx" "0" "DEL" "k""#, r#"lua] "DEL" "k""#]), 0);
    }
}
