//! What the scripts answer, without the number: text in, meaning out. `None` is not an answer of ours.

use crate::fence;

/// The answer of `try`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Try {
    /// Mine. `clock`: the server's time in µs.
    Held { fence: u64, clock: u64 },
    /// Another's, for `pttl` ms more; −1: for ever.
    Taken { pttl: i64, hands_over: HandsOver, clock: u64 },
    /// Executed after its `not_after`: nothing was done.
    Late { clock: u64 },
}

impl Try {
    pub(crate) fn parse(text: &str) -> Option<Try> {
        let mut words = text.split(' ');
        let answer = match words.next()? {
            "held" => {
                let (fence, clock) = held(&mut words)?;
                Try::Held { fence, clock }
            }
            "taken" => {
                let pttl = words.next()?.parse().ok()?;
                let hands_over = HandsOver::parse(words.next()?)?;
                Try::Taken { pttl, hands_over, clock: words.next()?.parse().ok()? }
            }
            "late" => Try::Late { clock: words.next()?.parse().ok()? },
            _ => return None,
        };
        words.next().is_none().then_some(answer)
    }
}

/// What follows "held": the fence and the server's clock.
fn held<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<(u64, u64)> {
    let fence = words.next()?.parse().ok().filter(|&f: &u64| f > 0 && f < fence::LIMIT)?;
    let clock = match words.next()? {
        "1" => fence,
        micros => micros.parse().ok()?,
    };
    Some((fence, clock))
}

/// Whether the holder hands the lock over to a waiter when it releases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandsOver {
    Yes,
    /// One of ours that cannot, or nobody.
    No,
    /// A holder that is none of ours.
    Foreign,
}

impl HandsOver {
    fn parse(word: &str) -> Option<HandsOver> {
        match word {
            "1" => Some(HandsOver::Yes),
            "0" => Some(HandsOver::No),
            "-1" => Some(HandsOver::Foreign),
            _ => None,
        }
    }
}

/// The answer of `wait`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Mine. `clock`: the server's time in µs.
    Held {
        fence: u64,
        clock: u64,
    },
    Queued(Queued),
    /// Executed after its `not_after`: nothing was done.
    Late {
        clock: u64,
    },
}

/// A place in the queue, or (rank `None`) none any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queued {
    /// For how many ms more the lock is another's; −1: for ever; −2: it is free.
    pub(crate) pttl: i64,
    pub(crate) hands_over: HandsOver,
    /// How many wait in front.
    pub(crate) rank: Option<u64>,
    pub(crate) place: u64,
    /// More dead waiters than one call clears: call again at once.
    pub(crate) again: bool,
    /// The server sees who listens for this waiter.
    pub(crate) push: bool,
    /// The waiter had been dropped, and is back with its place.
    pub(crate) back: bool,
    pub(crate) clock: u64,
}

impl Wait {
    pub(crate) fn parse(text: &str) -> Option<Wait> {
        let mut words = text.split(' ');
        let answer = match words.next()? {
            "held" => {
                let (fence, clock) = held(&mut words)?;
                Wait::Held { fence, clock }
            }
            "queued" => Wait::Queued(Queued::parse(&mut words)?),
            "late" => Wait::Late { clock: words.next()?.parse().ok()? },
            _ => return None,
        };
        words.next().is_none().then_some(answer)
    }
}

impl Queued {
    fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Queued> {
        Some(Queued {
            pttl: words.next()?.parse().ok()?,
            hands_over: HandsOver::parse(words.next()?)?,
            rank: match words.next()? {
                "-1" => None,
                rank => Some(rank.parse().ok()?),
            },
            place: words.next()?.parse().ok()?,
            again: flag(words.next()?)?,
            push: flag(words.next()?)?,
            back: flag(words.next()?)?,
            clock: words.next()?.parse().ok()?,
        })
    }
}

fn flag(word: &str) -> Option<bool> {
    match word {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

/// The answer of `release` and `force`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Released {
    /// It was the asked one, and is free now.
    Freed,
    /// It was the asked one, and is the first waiter's now.
    HandedOver,
    /// It was the asked one, and is free now: the waiter could not be told.
    Unannounced,
    /// There was no lock.
    Gone,
    /// Another's: untouched.
    Others,
}

impl Released {
    pub(crate) fn parse(text: &str) -> Option<Released> {
        match text {
            "1" => Some(Released::Freed),
            "2" => Some(Released::HandedOver),
            "3" => Some(Released::Unannounced),
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

/// The answer of `stamp`. `clock`: the server's time in µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamp {
    /// Mine, for `left` ms more.
    Held { left: u64, clock: u64 },
    /// Another's, for `left` ms more; −1: for ever.
    Taken { left: i64, clock: u64 },
    /// Executed after its `not_after`, or with too little left of its stamp: nothing was done.
    Late { clock: u64 },
}

impl Stamp {
    pub(crate) fn parse(text: &str) -> Option<Stamp> {
        let mut words = text.split(' ');
        let answer = match words.next()? {
            "held" => Stamp::Held { left: words.next()?.parse().ok()?, clock: words.next()?.parse().ok()? },
            "taken" => Stamp::Taken { left: words.next()?.parse().ok()?, clock: words.next()?.parse().ok()? },
            "late" => Stamp::Late { clock: words.next()?.parse().ok()? },
            _ => return None,
        };
        words.next().is_none().then_some(answer)
    }
}

/// The answer of `unstamp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unstamp {
    Freed,
    /// Mine, and over: untouched.
    Over,
    Gone,
    Others,
}

impl Unstamp {
    pub(crate) fn parse(text: &str) -> Option<Unstamp> {
        match text {
            "1" => Some(Unstamp::Freed),
            "2" => Some(Unstamp::Over),
            "-1" => Some(Unstamp::Gone),
            "0" => Some(Unstamp::Others),
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
            (
                "taken 2500 1 1764547200000000",
                Some(Try::Taken { pttl: 2500, hands_over: HandsOver::Yes, clock: 1_764_547_200_000_000 }),
            ),
            ("taken -1 -1 5", Some(Try::Taken { pttl: -1, hands_over: HandsOver::Foreign, clock: 5 })),
            ("taken 7 0 5", Some(Try::Taken { pttl: 7, hands_over: HandsOver::No, clock: 5 })),
            ("taken 7 2 5", None),
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
        assert_eq!(
            ["1", "2", "3"].map(Released::parse),
            [Some(Released::Freed), Some(Released::HandedOver), Some(Released::Unannounced)]
        );
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

    #[test]
    fn a_place_in_the_queue_is_read_whole_or_not_at_all() {
        let queued = Queued {
            pttl: 2500,
            hands_over: HandsOver::Yes,
            rank: Some(3),
            place: 1_764_547_200_000_000,
            again: false,
            push: true,
            back: true,
            clock: 5,
        };
        let none = Queued { pttl: -2, hands_over: HandsOver::No, rank: None, place: 0, again: true, ..queued };
        let table = [
            ("queued 2500 1 3 1764547200000000 0 1 1 5", Some(Wait::Queued(queued))),
            ("queued -2 0 -1 0 1 1 1 5", Some(Wait::Queued(none))),
            ("held 17 1764547200000000", Some(Wait::Held { fence: 17, clock: 1_764_547_200_000_000 })),
            ("late 5", Some(Wait::Late { clock: 5 })),
            ("queued 2500 1 3 1764547200000000 0 1 1", None),
            ("queued 2500 1 3 1764547200000000 0 1 1 5 5", None),
            ("queued 2500 1 3 1764547200000000 0 2 1 5", None),
            ("queued 2500 3 3 1764547200000000 0 1 1 5", None),
            ("taken 2500 1 5", None),
            ("", None),
        ];
        for (text, meaning) in table {
            assert_eq!(Wait::parse(text), meaning, "{text:?}");
        }
    }

    #[test]
    fn stamps_are_answered_in_words_of_their_own() {
        let table = [
            ("held 30250 1764547200000000", Some(Stamp::Held { left: 30_250, clock: 1_764_547_200_000_000 })),
            ("taken 17 5", Some(Stamp::Taken { left: 17, clock: 5 })),
            ("taken -1 5", Some(Stamp::Taken { left: -1, clock: 5 })),
            ("late 5", Some(Stamp::Late { clock: 5 })),
            ("held -1 5", None),
            ("held 1", None),
            ("taken 17 1 5", None),
            ("", None),
        ];
        for (text, meaning) in table {
            assert_eq!(Stamp::parse(text), meaning, "{text:?}");
        }
        let all = [Unstamp::Freed, Unstamp::Over, Unstamp::Gone, Unstamp::Others].map(Some);
        assert_eq!(["1", "2", "-1", "0"].map(Unstamp::parse), all);
        assert_eq!(["3", "OK", ""].map(Unstamp::parse), [None; 3]);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in ".*") {
            let _ = (Try::parse(&text), Wait::parse(&text), Released::parse(&text), Renewed::parse(&text), Left::parse(&text));
            let _ = (Stamp::parse(&text), Unstamp::parse(&text));
        }
    }
}
