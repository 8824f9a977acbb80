//! Asking with `wait`, and what it answers.

use super::*;

/// What a waiter says of itself: it wants 5 s, and may be silent for 1 s.
impl Desk {
    pub(super) fn try_wait(&mut self, token: &str, place: u64, beat: u64, channel: &str) -> Result<Waited, RedisError> {
        let (place, beat) = (place.to_string(), beat.to_string());
        Ok(Waited::read(&self.try_run(WAIT, &[token, "5000", "0", "0", &place, &beat, channel])?))
    }

    pub(super) fn wait(&mut self, token: &str, place: u64) -> Waited {
        self.try_wait(token, place, 1000, "").unwrap()
    }

    pub(super) fn last(&mut self, token: &str) -> Waited {
        self.try_wait(token, 0, 0, "").unwrap()
    }
}

#[derive(Debug)]
pub(super) enum Waited {
    Held(u64),
    Late,
    Queued { pttl: i64, hands_over: i64, rank: i64, place: u64, again: bool, push: bool, back: bool, clock: u64 },
}

impl Waited {
    pub(super) fn read(answer: &str) -> Waited {
        let words: Vec<&str> = answer.split(' ').collect();
        let whole = |i: usize| words[i].parse::<i64>().unwrap_or_else(|_| panic!("{answer:?}"));
        let flag = |i: usize| ["0", "1"].iter().position(|flag| *flag == words[i]).expect("a flag") == 1;
        match (words[0], words.len()) {
            ("held", 3) => Waited::Held(words[1].parse().unwrap()),
            ("late", 2) => Waited::Late,
            ("queued", 9) => Waited::Queued {
                pttl: whole(1),
                hands_over: whole(2),
                rank: whole(3),
                place: words[4].parse().unwrap_or_else(|_| panic!("{answer:?}")),
                again: flag(5),
                push: flag(6),
                back: flag(7),
                clock: words[8].parse().unwrap(),
            },
            _ => panic!("{answer:?}"),
        }
    }

    #[track_caller]
    pub(super) fn place(&self) -> u64 {
        let Waited::Queued { place, .. } = self else { panic!("{self:?}") };
        *place
    }

    #[track_caller]
    pub(super) fn rank(&self) -> i64 {
        let Waited::Queued { rank, .. } = self else { panic!("{self:?}") };
        *rank
    }

    #[track_caller]
    pub(super) fn fence(&self) -> u64 {
        let Waited::Held(fence) = self else { panic!("{self:?}") };
        *fence
    }
}
