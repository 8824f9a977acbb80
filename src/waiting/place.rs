//! A place in a lock's queue, as its waiter knows it: what it may believe of a message, and when it looks
//! by itself. Pure: times and random numbers come in as arguments.
//!
//! Two owners came out of every shortcut here: counting a lease from the last `wait` or from the arrival
//! of its message, or believing a message whatever its number.

use std::{sync::Arc, time::Duration};

use super::backoff::{Backoff, Pauses};
use super::listener::Enrolled;
use super::mailbox::{Announced, Mail};
use crate::clock::Moment;
use crate::keeping::lease;
use crate::nodes::{HandsOver, Queued, Sent, remaining};

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) enrolled: Arc<Enrolled>,
    /// What Redis called it; 0 while there is none, or it is to be a new one.
    pub(crate) place: u64,
    /// It had been dropped, and came back in front; the second time it comes back behind, so that a waiter
    /// which never uses its grants stalls the others once a round.
    came_back: bool,
    /// Redis may have an entry of this token.
    pub(crate) entered: bool,
    /// More dead waiters stand in front than one call clears.
    pub(crate) again: bool,
    calls: Calls,
    rank: Option<u64>,
    /// The server sees who listens.
    pushed: bool,
    spin: Pauses,
}

/// The `wait`s on which a grant may rest that is not over: the latest that was answered, and later ones.
#[derive(Debug, Default)]
struct Calls {
    sent: Vec<Sent>,
    answered: u64,
}

/// What a waiter makes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Belief {
    /// The lock is mine: a lease of `px` ms from `sent` on.
    Mine { sent: Moment, px: Duration, fence: u64 },
    /// One `wait` will say.
    Confirm,
    /// Of a grant that is over.
    Stale,
}

/// How long a waiter may be silent before it counts as dead: bounds what a dead one costs the others.
pub(crate) fn beat(ttl: Duration) -> Duration {
    ttl.clamp(Duration::from_millis(300), Duration::from_millis(1500))
}

/// How often a waiter looks by itself, at the least often: a grant always outlives the next look.
pub(crate) fn poll(ttl: Duration) -> Duration {
    beat(ttl) / 3
}

/// The longest pauses behind a holder that does not hand over, and behind one that is none of ours.
const LIVELY: Duration = Duration::from_millis(25);
const FOREIGN: Duration = Duration::from_millis(50);
/// A PTTL is rounded, and the key must be gone when we ask.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);

impl Place {
    pub(crate) fn new(enrolled: Arc<Enrolled>, backoff: Backoff) -> Place {
        let spin = Pauses::new(backoff.spins(0));
        Place {
            enrolled,
            place: 0,
            came_back: false,
            entered: false,
            again: false,
            calls: Calls::default(),
            rank: None,
            pushed: false,
            spin,
        }
    }

    /// These calls were made, whatever became of them.
    pub(crate) fn sent(&mut self, calls: Vec<Sent>) {
        self.entered |= !calls.is_empty();
        self.calls.sent.extend(calls);
    }

    /// The call of this number was answered.
    pub(crate) fn queued(&mut self, number: u64, queued: &Queued) {
        if number > self.calls.answered {
            self.calls.answered = number;
            self.calls.sent.retain(|sent| sent.number >= number);
        }
        self.came_back |= queued.back;
        self.place = if self.came_back { 0 } else { queued.place };
        self.entered = queued.rank.is_some();
        self.again = queued.again;
        if queued.rank < self.rank {
            self.spin.restart();
        }
        self.rank = queued.rank;
        self.pushed = queued.push;
    }

    /// A call found that the lock is mine, though a message was to be expected.
    pub(crate) fn was_not_told(&self) -> bool {
        self.pushed && self.enrolled.mailbox.take() == Mail::Nothing
    }

    pub(crate) fn believe(&self, announced: Announced, hint: u64, renews: bool, now: Moment) -> Belief {
        let Announced { number, px, fence } = announced;
        let sent = self.calls.sent.iter().find(|sent| sent.number == number && number >= self.calls.answered);
        let Some(&Sent { at: sent, .. }) = sent else { return Belief::Stale };
        let px = Duration::from_millis(px);
        if lease::valid_until(sent, px) > now && fence > hint && renews {
            Belief::Mine { sent, px, fence }
        } else {
            Belief::Confirm
        }
    }

    /// The pause until the next look, never zero.
    pub(crate) fn pause(&mut self, queued: &Queued, ttl: Duration, random: u64) -> Duration {
        let first = queued.rank == Some(0);
        let pause = match queued.hands_over {
            HandsOver::Yes if queued.push => jittered(poll(ttl), random),
            HandsOver::Yes | HandsOver::No => self.spin.next(random).min(LIVELY),
            HandsOver::Foreign if first => self.spin.next(random).min(FOREIGN),
            HandsOver::Foreign => jittered(poll(ttl), random),
        };
        let pause = match remaining(queued.pttl) {
            Some(left) if first => pause.min(left + AFTER_EXPIRY),
            _ => pause,
        };
        pause.max(Duration::from_millis(1))
    }
}

/// Between three quarters and the whole.
fn jittered(most: Duration, random: u64) -> Duration {
    let span = u64::try_from((most / 4).as_nanos()).unwrap_or(u64::MAX);
    most - Duration::from_nanos(random % span.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn at(ms: u64) -> Moment {
        Moment::PAST.after(Duration::from_millis(1_000_000 + ms))
    }

    fn place() -> Place {
        Place::new(Enrolled::alone("token"), Backoff::new())
    }

    fn queued() -> Queued {
        Queued {
            pttl: 30_000,
            hands_over: HandsOver::Yes,
            rank: Some(0),
            place: 4711,
            again: false,
            push: true,
            back: false,
            clock: 0,
        }
    }

    fn sent(number: u64, ms: u64) -> Sent {
        Sent { number, at: at(ms) }
    }

    #[test]
    fn a_grant_counts_from_the_send_of_the_wait_on_which_it_rests() {
        let mut place = place();
        place.sent(vec![sent(10, 0)]);
        place.queued(10, &queued());
        place.sent(vec![sent(11, 400)]);
        let announced = |number, px, fence| Announced { number, px, fence };
        let mine = |ms_sent, px| Belief::Mine { sent: at(ms_sent), px: ms(px), fence: 50 };
        let table = [
            (announced(10, 1500, 50), at(800), mine(0, 1500), "the answered one"),
            (announced(11, 1500, 50), at(800), mine(400, 1500), "one without an answer"),
            (announced(9, 1500, 50), at(800), Belief::Stale, "an earlier one: its grant is over"),
            (announced(12, 1500, 50), at(800), Belief::Stale, "none of this acquisition"),
            (announced(10, 500, 50), at(499), Belief::Confirm, "over, by the clock less its drift"),
            (announced(10, 1500, 40), at(800), Belief::Confirm, "a fence that this client has had"),
        ];
        for (announced, now, belief, why) in table {
            assert_eq!(place.believe(announced, 40, true, now), belief, "{why}");
        }
        assert_eq!(place.believe(announced(10, 1500, 50), 40, false, at(1)), Belief::Confirm, "not renewed");
        place.queued(11, &queued());
        assert_eq!(place.believe(announced(10, 1500, 50), 40, true, at(800)), Belief::Stale, "answered since");
    }

    #[test]
    fn an_answer_that_comes_out_of_order_changes_no_number() {
        let mut place = place();
        place.sent(vec![sent(10, 0), sent(11, 400)]);
        place.queued(11, &queued());
        place.queued(10, &queued());
        let late = Announced { number: 10, px: 1500, fence: 50 };
        assert_eq!(place.believe(late, 0, true, at(500)), Belief::Stale);
    }

    #[test]
    fn a_place_is_kept_and_given_up_once_it_was_used() {
        let mut place = place();
        place.queued(1, &queued());
        assert_eq!((place.place, place.entered), (4711, true));
        place.queued(2, &Queued { back: true, ..queued() });
        assert_eq!(place.place, 0, "behind, the next time");
        place.queued(3, &queued());
        assert_eq!(place.place, 0, "from then on");
        place.queued(4, &Queued { rank: None, place: 0, ..queued() });
        assert!(!place.entered);
    }

    #[test]
    fn who_is_told_looks_seldom_and_who_is_not_looks_often() {
        let ttl = Duration::from_secs(30);
        let longest = |queued: &Queued| {
            let mut place = place();
            (0..200).map(|n| place.pause(queued, ttl, u64::wrapping_mul(n, 0x9e37_79b9_7f4a_7c15))).max().unwrap()
        };
        let table = [
            (queued(), ms(375), ms(500), "pushed"),
            (Queued { push: false, ..queued() }, ms(10), ms(25), "not pushed"),
            (Queued { hands_over: HandsOver::No, ..queued() }, ms(10), ms(25), "nobody hands over"),
            (Queued { hands_over: HandsOver::Foreign, ..queued() }, ms(26), ms(50), "first behind a foreign one"),
            (
                Queued { hands_over: HandsOver::Foreign, rank: Some(1), ..queued() },
                ms(375),
                ms(500),
                "behind the first",
            ),
            (Queued { pttl: 40, ..queued() }, ms(42), ms(42), "first, and the holder's time is nearly over"),
            (Queued { pttl: 40, rank: Some(1), ..queued() }, ms(375), ms(500), "the first one looks then"),
            (Queued { pttl: -1, ..queued() }, ms(375), ms(500), "a holder without a ttl"),
        ];
        for (queued, least, most, why) in table {
            let longest = longest(&queued);
            assert!(least <= longest && longest <= most, "{why}: {longest:?}");
        }
        assert_eq!(place().pause(&Queued { pttl: -2, hands_over: HandsOver::No, ..queued() }, ttl, 7), ms(2));
    }

    #[test]
    fn a_beat_bounds_what_a_dead_waiter_costs() {
        assert_eq!([ms(10), ms(700), ms(30_000)].map(beat), [ms(300), ms(700), ms(1500)]);
        assert_eq!(poll(ms(30_000)), ms(500));
    }
}
