//! What the scripts answer, without the number: text in, meaning out. `None` is not an answer of ours.

use crate::fence;

/// The answer of `try`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Try {
    /// Mine. `clock`: the server's time in µs.
    Held { fence: u64, clock: u64 },
    /// Another's, for `pttl` ms more; −1: for ever.
    Taken { pttl: i64, clock: u64 },
    /// Executed after its `not_after`: nothing was done.
    Late { clock: u64 },
}

impl Try {
    pub(crate) fn parse(text: &str) -> Option<Try> {
        let mut words = text.split(' ');
        let answer = match words.next()? {
            "held" => {
                let fence = words.next()?.parse().ok().filter(|&f: &u64| f > 0 && f < fence::LIMIT)?;
                let clock = match words.next()? {
                    "1" => fence,
                    micros => micros.parse().ok()?,
                };
                Try::Held { fence, clock }
            }
            "taken" => {
                let pttl = words.next()?.parse().ok()?;
                let _hands_over: i8 = words.next()?.parse().ok()?;
                Try::Taken { pttl, clock: words.next()?.parse().ok()? }
            }
            "late" => Try::Late { clock: words.next()?.parse().ok()? },
            _ => return None,
        };
        words.next().is_none().then_some(answer)
    }
}

/// The answer of `release` and `force`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Released {
    /// It was the asked one, and is free now.
    Freed,
    /// There was no lock.
    Gone,
    /// Another's: untouched.
    Others,
}

impl Released {
    pub(crate) fn parse(text: &str) -> Option<Released> {
        match text {
            "1" | "2" | "3" => Some(Released::Freed),
            "-1" => Some(Released::Gone),
            "0" => Some(Released::Others),
            _ => None,
        }
    }
}

/// The answer of `renew`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Renewed {
    Yes,
    /// Another's, or another lease of the same token.
    Others,
    Gone,
}

impl Renewed {
    pub(crate) fn parse(text: &str) -> Option<Renewed> {
        match text {
            "1" => Some(Renewed::Yes),
            "0" => Some(Renewed::Others),
            "-1" => Some(Renewed::Gone),
            _ => None,
        }
    }
}

/// The answer of `leave`: is it the last that is needed?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// No attempt of that acquisition can be accepted any more.
    Final,
    NotYet,
}

impl Left {
    pub(crate) fn parse(text: &str) -> Option<Left> {
        let (released, last) = text.split_once(' ')?;
        Released::parse(released)?;
        match last {
            "1" => Some(Left::Final),
            "0" => Some(Left::NotYet),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_mean_what_the_scripts_say() {
        let table = [
            ("held 1764547200000000 1", Some(Try::Held { fence: 1_764_547_200_000_000, clock: 1_764_547_200_000_000 })),
            ("held 17 1764547200000000", Some(Try::Held { fence: 17, clock: 1_764_547_200_000_000 })),
            ("taken 2500 1 1764547200000000", Some(Try::Taken { pttl: 2500, clock: 1_764_547_200_000_000 })),
            ("taken -1 -1 5", Some(Try::Taken { pttl: -1, clock: 5 })),
            ("late 5", Some(Try::Late { clock: 5 })),
            ("held 0 5", None),
            ("held 9007199254740992 5", None),
            ("held 17", None),
            ("held 17 5 5", None),
            ("taken 1 1", None),
            ("PONG", None),
            ("", None),
        ];
        for (text, meaning) in table {
            assert_eq!(Try::parse(text), meaning, "{text:?}");
        }
    }

    #[test]
    fn every_verb_has_answers_of_its_own() {
        assert_eq!(["1", "2", "3"].map(Released::parse), [Some(Released::Freed); 3]);
        assert_eq!(["0", "-1"].map(Released::parse), [Some(Released::Others), Some(Released::Gone)]);
        assert_eq!(
            ["1", "0", "-1"].map(Renewed::parse),
            [Some(Renewed::Yes), Some(Renewed::Others), Some(Renewed::Gone)]
        );
        assert_eq!(["1 1", "-1 0"].map(Left::parse), [Some(Left::Final), Some(Left::NotYet)]);
        assert_eq!(["OK", ""].map(Released::parse), [None; 2]);
        assert_eq!(["OK", "2"].map(Renewed::parse), [None; 2]);
        assert_eq!(["1", "1 2", "x 1"].map(Left::parse), [None; 3]);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in ".*") {
            let _ = (Try::parse(&text), Released::parse(&text), Renewed::parse(&text), Left::parse(&text));
        }
    }
}
