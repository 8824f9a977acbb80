//! Tokens: the name of one acquisition, and the value of the lock's key while it holds.
//!
//! `d1.<client id>-<counter>[.<label>]`, visible ASCII, no space. A token is never used again: the
//! client id is a random uuid and the pid, the counter never repeats. `d1.` says that its holder hands
//! the lock over to a waiter when it releases; one that cannot tell a waiter so writes `d0.`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the tokens of one client.
#[derive(Debug)]
pub(crate) struct Mint {
    /// What every token of the client begins with, but for its kind.
    client: String,
    counter: AtomicU64,
}

impl Mint {
    pub(crate) fn new() -> Mint {
        // The pid beside the uuid: with uuid's `fast-rng` (which any crate of a program can switch
        // on) a parent and its forked child draw the same numbers.
        let id = uuid::Uuid::new_v4().simple();
        Mint { client: format!("{id}-{}", std::process::id()), counter: AtomicU64::new(1) }
    }

    /// Names the client, and nothing else.
    pub(crate) fn client(&self) -> &str {
        &self.client
    }

    /// `hands_over`: its holder can tell a waiter that it has the lock.
    pub(crate) fn token(&self, label: Option<&str>, hands_over: bool) -> String {
        let n = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut token = String::with_capacity(self.client.len() + 28 + label.map_or(0, str::len));
        token.push_str(if hands_over { "d1." } else { "d0." });
        token.push_str(&self.client);
        token.push('-');
        crate::decimal::push(&mut token, n);
        if let Some(label) = label {
            token.push('.');
            token.push_str(label);
        }
        token
    }
}

/// The label in a token of ours; foreign values have none.
pub(crate) fn label_of(token: &str) -> Option<&str> {
    if !(token.starts_with("d0.") || token.starts_with("d1.")) {
        return None;
    }
    token.splitn(3, '.').nth(2)
}

/// A token that must not be printed whole: whoever has it can end the hold.
pub(crate) fn short(token: &str) -> String {
    let tail: Vec<char> = token.chars().rev().take(6).collect();
    format!("…{}", tail.into_iter().rev().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_used_again() {
        let mint = Mint::new();
        let other = Mint::new();
        let all: std::collections::HashSet<String> =
            (0..1000).flat_map(|_| [mint.token(None, true), other.token(None, true)]).collect();
        assert_eq!(all.len(), 2000);
    }

    #[test]
    fn a_label_is_read_back() {
        let mint = Mint::new();
        for label in ["web-1", "a.b.c", "~"] {
            assert_eq!(label_of(&mint.token(Some(label), true)), Some(label));
        }
        assert_eq!(label_of(&mint.token(None, false)), None);
        assert_eq!(label_of("somebody.else's.token"), None);
    }

    #[test]
    fn tokens_are_visible_ascii_and_name_the_process() {
        for (hands_over, kind) in [(true, "d1."), (false, "d0.")] {
            let token = Mint::new().token(Some("x"), hands_over);
            assert!(token.bytes().all(|b| b.is_ascii_graphic()), "{token}");
            assert!(token.starts_with(kind), "{token}");
            assert!(token.contains(&format!("-{}-", std::process::id())), "{token}");
        }
    }
}
