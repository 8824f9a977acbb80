//! The head of a gate: the one thread of its process that asks Redis for the key, its attempts and
//! its pauses. It holds no connection while it sleeps.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use log::{trace, warn};

use super::asker::{Asker, Refusal, TooLate, Won};
use super::gate::Turn;
use super::interrupt::Interrupt;
use super::seat::{Left, Seat};
use crate::clock::Moment;
use crate::keeping::{Grant, lease};
use crate::nodes::{Attempt, Attempted, NotAfter, Outcome};
use crate::server::{Class, Failure};
use crate::sync::park_until;

/// What came of an attempt.
pub(super) enum Step {
    Won(Won),
    Taken(Option<Duration>),
    Failed(Failure),
    /// Granted, and over before the answer could be used.
    TooLate,
}

/// How a pause ended.
pub(super) enum Paused {
    Over,
    Deadline,
    Interrupted,
}

/// A PTTL is rounded, and the key must be gone when we ask.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);

/// The thread that asks Redis, with what it knows.
pub(super) struct Head<'a> {
    asker: Asker<'a>,
    turn: Option<Turn<Left>>,
    /// There until the lock is won.
    seat: Option<Seat>,
}

impl<'a> Head<'a> {
    pub(super) fn new(asker: Asker<'a>, turn: Option<Turn<Left>>, seat: Seat) -> Head<'a> {
        Head { asker, turn, seat: Some(seat) }
    }

    pub(super) fn only_attempt(mut self) -> Result<Won, Refusal> {
        match self.attempt() {
            Step::Won(won) => Ok(won),
            Step::Taken(_) => Err(Refusal::Taken),
            Step::Failed(failure) => Err(Refusal::Failed(failure)),
            Step::TooLate => {
                let late = "the grant came when its lease was over";
                Err(Refusal::Failed(Failure::with_text(Class::Unavailable, late)))
            }
        }
    }

    pub(super) fn attempt(&mut self) -> Step {
        let Asker { keeper, local, shape, .. } = self.asker;
        // In its place until the lock is won: whatever panics, it is handed over or taken back.
        let Some(seat) = &mut self.seat else { return Step::TooLate };
        let ttl = shape.terms.first_ttl();
        let attempt = Attempt {
            key: &local.key,
            token: &seat.token,
            ttl: lease::server_millis(ttl),
            hint: local.hint(),
            io: keeper.io(&shape.terms),
        };
        let Attempted { outcome, ghost } = keeper.nodes.acquire(&attempt);
        seat.ghost = seat.ghost.max(ghost);
        match outcome {
            Ok(Outcome::Granted { fence, sent }) => {
                local.news.answered();
                let grant = Grant { fence, sent, ttl, ghost: seat.ghost };
                self.win(&grant)
            }
            Ok(Outcome::Taken { remaining }) => {
                local.news.answered();
                trace!("lock {:?} is taken, for {remaining:?} more", local.key.text);
                if remaining.is_none() && !std::mem::replace(&mut seat.said.endless, true) {
                    warn!(
                        "lock {:?} is held without a ttl: unless its holder releases it, nobody gets it",
                        local.key.text
                    );
                }
                Step::Taken(remaining)
            }
            Err(failure) => {
                local.failed(&failure);
                Step::Failed(failure)
            }
        }
    }

    /// Nobody else's code runs from here until there is a guard.
    fn win(&mut self, grant: &Grant) -> Step {
        let Some(seat) = self.seat.take() else { return Step::TooLate };
        match self.asker.hold(seat.token, grant, self.turn.take()) {
            Ok(won) => Step::Won(won),
            Err(TooLate { held, turn }) => {
                self.asker.take_back(&held.token, grant.ghost.unwrap_or(NotAfter::NONE));
                self.turn = turn;
                self.seat = Some(Seat { pauses: seat.pauses, said: seat.said, ..self.asker.new_seat() });
                Step::TooLate
            }
        }
    }

    /// Sets the time of the next attempt: by the backoff, and not after the holder's ttl is over.
    pub(super) fn plan(&mut self, remaining: Option<Duration>) {
        let Some(seat) = &mut self.seat else { return };
        let pause = seat.pauses.next(RandomState::new().hash_one(0));
        if pause.is_zero() {
            std::thread::yield_now();
        }
        seat.next = Moment::now().after(remaining.map_or(pause, |ttl| pause.min(ttl + AFTER_EXPIRY)));
    }

    /// Sleeps until the next attempt is due.
    pub(super) fn pause(&self, deadline: Option<Moment>) -> Paused {
        let next = self.seat.as_ref().map_or(Moment::PAST, |seat| seat.next);
        if next <= Moment::now() && !self.asker.is_interrupted() {
            return Paused::Over;
        }
        let _sleeper = self.asker.manner.interrupt.as_ref().map(Interrupt::sleeper);
        loop {
            let now = Moment::now();
            if self.asker.is_interrupted() {
                return Paused::Interrupted;
            }
            if now >= next {
                return Paused::Over;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Paused::Deadline;
            }
            park_until(deadline.map_or(next, |deadline| next.min(deadline)));
        }
    }

    pub(super) fn has_successor(&self) -> bool {
        self.turn.as_ref().is_some_and(Turn::has_successor)
    }

    /// A wrong address must not be half a minute of silence.
    pub(super) fn say_failing(&mut self, failure: &Failure, deadline: Option<Moment>) {
        let Some(seat) = self.seat.as_mut().filter(|seat| !seat.said.failing) else { return };
        seat.said.failing = true;
        let (name, limit) = (&self.asker.keeper.name, self.asker.manner.unreachable_after);
        match deadline {
            Some(deadline) => {
                let left = Moment::now().until(deadline);
                warn!("redis {name:?} gives no lock, trying for {left:?} more: {failure}");
            }
            None if limit == Duration::MAX => warn!("redis {name:?} gives no lock, trying until it does: {failure}"),
            None => warn!("redis {name:?} gives no lock, trying for {limit:?}: {failure}"),
        }
    }
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        let left = match self.turn.take() {
            Some(turn) => turn.hand_over(Left::Seat(seat)),
            None => Err(Left::Seat(seat)),
        };
        if let Err(Left::Seat(Seat { token, ghost: Some(not_after), .. })) = left {
            self.asker.take_back(&token, not_after);
        }
    }
}
