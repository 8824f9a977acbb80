//! The acquisition loop, the only one: attempt, wait, attempt … and one last attempt at the deadline.
//!
//! A thread first waits for its turn in the gate, then asks Redis as the head of its process. It holds
//! no connection while it sleeps. Whatever way it ends (lock, refusal, panic), its seat goes to the
//! next thread or is taken back.

use std::{sync::Arc, time::Duration};

use super::backoff::Backoff;
use super::gate::{Busy, Gate, Refused, Tenure, Turn};
use super::head::{Head, Paused, Step};
use super::interrupt::Interrupt;
use super::local::{LocalKey, Shape};
use super::seat::Seat;
use crate::clock::Moment;
use crate::keeping::{Bystander, Errand, Grant, Held, Keeper, lease};
use crate::nodes::NotAfter;
use crate::server::Failure;

/// How a lock waits.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) unreachable_after: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) interrupt: Option<Interrupt>,
}

/// One lock, as the loop sees it.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) keeper: &'a Keeper,
    pub(crate) local: &'a LocalKey,
    pub(crate) gate: &'a Arc<Gate<Seat>>,
    pub(crate) shape: &'a Shape,
    pub(crate) manner: &'a Manner,
}

/// The lock is held.
pub(crate) struct Won {
    pub(crate) held: Arc<Held>,
    /// The place in the gate; a hold that was resumed, or won by a single attempt past a waiting head,
    /// has none.
    pub(crate) turn: Option<Turn<Seat>>,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum Refusal {
    Taken,
    Interrupted,
    Failed(Failure),
    /// No useful answer for so long.
    Silent(Duration, Failure),
}

impl<'a> Asker<'a> {
    /// One attempt.
    pub(crate) fn once(self) -> Result<Won, Refusal> {
        let turn = match self.gate.try_enter() {
            Ok(turn) => Some(turn),
            Err(Busy::Held) => return Err(Refusal::Taken),
            // The head may sleep for long; this caller wants to know now.
            Err(Busy::Asking) => None,
        };
        self.head(turn).only_attempt()
    }

    /// Waits until `deadline`, or without one for as long as Redis answers.
    pub(crate) fn wait(self, deadline: Option<Moment>) -> Result<Won, Refusal> {
        let start = Moment::now();
        if self.is_interrupted() {
            return Err(Refusal::Interrupted);
        }
        if deadline.is_some_and(|deadline| deadline <= start) {
            return self.once();
        }
        let mut head = self.head(Some(self.turn(start, deadline)?));
        loop {
            let last = match head.pause(deadline) {
                Paused::Interrupted => return Err(Refusal::Interrupted),
                // No I/O at the deadline if somebody else goes on with the seat.
                Paused::Deadline if head.has_successor() => return Err(self.verdict()),
                Paused::Deadline => true,
                Paused::Over => false,
            };
            match head.attempt(start) {
                Step::Won(won) => return Ok(won),
                Step::Failed(failure) if !failure.is_transient() => return Err(Refusal::Failed(failure)),
                Step::Failed(failure) => {
                    if deadline.is_none()
                        && let Some(waited) = self.waited_out(start)
                    {
                        return Err(Refusal::Silent(waited, failure));
                    }
                    head.say_failing(&failure, deadline);
                    head.plan(None);
                }
                Step::Taken(remaining) => head.plan(remaining),
                Step::TooLate => head.plan(None),
            }
            if last || deadline.is_some_and(|deadline| deadline <= Moment::now()) {
                return Err(self.verdict());
            }
        }
    }

    /// Takes over a hold by its token; `None` if it is gone.
    pub(crate) fn resume(self, token: &str) -> Result<Option<Won>, Failure> {
        let ttl = self.shape.terms.first_ttl();
        let io = self.keeper.io(&self.shape.terms);
        let resumed = self.keeper.nodes.resume(&self.local.key, token, lease::server_millis(ttl), io)?;
        let Some((fence, sent)) = resumed else { return Ok(None) };
        let grant = Grant { fence, sent, ttl, ghost: None };
        Ok(self.hold(token.to_owned(), &grant, self.gate.try_enter().ok()).ok())
    }

    fn head(self, turn: Option<Turn<Seat>>) -> Head<'a> {
        let left = turn.as_ref().and_then(Turn::take_seat);
        Head::new(self, turn, left.unwrap_or_else(|| self.new_seat()))
    }

    pub(super) fn new_seat(self) -> Seat {
        Seat::new(self.keeper.tokens.token(self.shape.label.as_deref()), self.manner.backoff)
    }

    /// Waits in the gate.
    fn turn(self, start: Moment, deadline: Option<Moment>) -> Result<Turn<Seat>, Refusal> {
        if let Ok(turn) = self.gate.try_enter() {
            return Ok(turn);
        }
        let _sleeper = self.manner.interrupt.as_ref().map(Interrupt::sleeper);
        let limit = |busy| {
            if busy == Some(Busy::Held) {
                // Like a Mutex: while it is held here, Redis is not asked, and nothing is missing.
                self.local.news.touch();
                return deadline.unwrap_or(Moment::NEVER);
            }
            deadline.unwrap_or_else(|| self.patience_ends(start))
        };
        self.gate.enter(&limit, &|| self.is_interrupted()).map_err(|refused| match refused {
            Refused::Interrupted => Refusal::Interrupted,
            Refused::Limit if deadline.is_some() => self.verdict(),
            Refused::Limit => match self.local.news.failure() {
                Some(failure) => Refusal::Silent(self.manner.unreachable_after, failure),
                None => Refusal::Taken,
            },
        })
    }

    /// The grant becomes a hold, if it is still good: the last look at the clock before a guard. Else
    /// the lock is taken back.
    pub(super) fn hold(
        self,
        token: String,
        grant: &Grant,
        turn: Option<Turn<Seat>>,
    ) -> Result<Won, Option<Turn<Seat>>> {
        let gate: Arc<dyn Bystander> = Arc::clone(self.gate) as _;
        let held = Held::new(self.keeper, &self.local.key, token, self.shape.terms, grant, Arc::downgrade(&gate));
        if !held.is_valid() {
            let not_after = grant.ghost.unwrap_or(NotAfter::NONE);
            self.keeper.watchdog.run(Errand::leave(&held.key, &held.token, not_after, held.terms.ttl, held.io));
            return Err(turn);
        }
        self.local.had(held.fence);
        self.keeper.watchdog.keep(&held);
        if let Some(turn) = &turn {
            turn.hold(Arc::clone(&held) as Arc<dyn Tenure>);
        }
        Ok(Won { held, turn })
    }

    pub(super) fn is_interrupted(self) -> bool {
        self.manner.interrupt.as_ref().is_some_and(Interrupt::is_interrupted)
    }

    /// At the deadline: what the last attempt for the key said, whichever thread made it.
    fn verdict(self) -> Refusal {
        self.local.news.failure().map_or(Refusal::Taken, Refusal::Failed)
    }

    /// When a waiter that began at `start` gives up, as things stand.
    fn patience_ends(self, start: Moment) -> Moment {
        let silent = self.local.news.silent_since(start);
        silent.map_or(Moment::NEVER, |since| since.after(self.manner.unreachable_after))
    }

    /// How long there was no useful answer, if that is too long.
    fn waited_out(self, start: Moment) -> Option<Duration> {
        let now = Moment::now();
        let since = self.local.news.silent_since(start)?;
        (since.after(self.manner.unreachable_after) <= now).then(|| since.until(now))
    }

    pub(super) fn take_back(self, seat: &Seat) {
        if let Some(not_after) = seat.ghost {
            let terms = self.shape.terms;
            let io = self.keeper.io(&terms);
            self.keeper.watchdog.run(Errand::leave(&self.local.key, &seat.token, not_after, terms.ttl, io));
        }
    }
}

impl Bystander for Gate<Seat> {
    fn lost(&self) {
        self.look_again();
    }
}

impl Tenure for Held {
    fn until(&self) -> Moment {
        self.valid()
    }
}
