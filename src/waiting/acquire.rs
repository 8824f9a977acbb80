//! The acquisition loop, the only one: attempt, wait, attempt … and one last attempt at the deadline.
//!
//! A thread first waits for its turn in the gate, then asks Redis as the head of its process. It holds
//! no connection while it sleeps. Whatever way it ends (lock, refusal, panic), its seat goes to the
//! next thread or is taken back.

use std::cell::{Cell, RefCell};

use super::asker::{Asker, Refusal, Won};
use super::gate::{Busy, Refused, Turn};
use super::head::{Head, Paused, Step};
use super::interrupt::Interrupt;
use super::seat::Seat;
use crate::clock::Moment;
use crate::keeping::{Grant, lease};
use crate::server::Failure;

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
                Paused::Deadline if head.has_successor() => return Err(self.verdict(start)),
                Paused::Deadline => true,
                Paused::Over => false,
            };
            match head.attempt() {
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
                return Err(self.verdict(start));
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
        let left = turn.as_ref().and_then(Turn::take_seat).map(|seat| seat.paced_by(self.manner.backoff));
        Head::new(self, turn, left.unwrap_or_else(|| self.new_seat()))
    }

    /// Waits in the gate.
    fn turn(self, start: Moment, deadline: Option<Moment>) -> Result<Turn<Seat>, Refusal> {
        if let Ok(turn) = self.gate.try_enter() {
            return Ok(turn);
        }
        let _sleeper = self.manner.interrupt.as_ref().map(Interrupt::sleeper);
        // Why the wait is limited, and what it is behind, as of the last look.
        let (silence, behind) = (RefCell::new(None), Cell::new(None));
        let limit = |busy| {
            behind.set(busy);
            if busy == Some(Busy::Held) {
                // Like a Mutex: while it is held here, Redis is not asked, and nothing is missing.
                return deadline.unwrap_or(Moment::NEVER);
            }
            deadline.unwrap_or_else(|| {
                let (ends, failure) = self.patience_ends(start);
                *silence.borrow_mut() = failure;
                ends
            })
        };
        match self.gate.enter(&limit, &|| self.is_interrupted()) {
            Ok(turn) => {
                if behind.get() == Some(Busy::Held) {
                    // Patience, of those behind too, begins now.
                    self.local.news.touch();
                }
                Ok(turn)
            }
            Err(Refused::Interrupted) => Err(Refusal::Interrupted),
            Err(Refused::Limit) => Err(match silence.take() {
                Some(failure) => Refusal::Silent(self.manner.unreachable_after, failure),
                None => self.verdict(start),
            }),
        }
    }
}
