//! The acquisition loop, the only one: attempt, wait, attempt … and one last attempt at the deadline.
//!
//! A thread first waits for its turn in the gate, then asks Redis as the head of its process. It holds
//! no connection while it sleeps. Whatever way it ends (lock, refusal, panic), its seat goes to the
//! next thread or is taken back.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use log::warn;

use super::asker::{Asker, Refusal, TooLate, Won};
use super::gate::{Busy, Refused, Turn};
use super::head::{Head, Paused, Step};
use super::interrupt::Interrupt;
use super::seat::Left;
use crate::clock::Moment;
use crate::keeping::{Grant, lease};
use crate::nodes::NotAfter;
use crate::server::Failure;

/// A wait behind a guard of the same process that is longer is likely to be a mistake: it is logged once.
const LONG_WAIT: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(60) };

/// What a thread is that has its turn.
enum Begun<'a> {
    Won(Won),
    Head(Head<'a>),
}

impl<'a> Asker<'a> {
    /// One attempt.
    pub(crate) fn once(self) -> Result<Won, Refusal> {
        if self.local.is_held() {
            return Err(Refusal::Taken);
        }
        let turn = match self.gate.try_enter() {
            Ok(turn) => Some(turn),
            Err(Busy::Held) => return Err(Refusal::Taken),
            // The head may sleep for long; this caller wants to know now.
            Err(Busy::Asking) => None,
        };
        match self.begin(turn) {
            Begun::Won(won) => Ok(won),
            Begun::Head(head) => head.only_attempt(),
        }
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
        let mut head = match self.begin(Some(self.turn(start, deadline)?)) {
            Begun::Won(won) => return Ok(won),
            Begun::Head(head) => head,
        };
        let refusal = match self.ask_until(&mut head, start, deadline) {
            Ok(won) => return Ok(won),
            Err(refusal) => refusal,
        };
        // A grant that has come meanwhile wins over whatever ends the wait.
        match head.granted().map(|grant| head.win(&grant)) {
            Some(Step::Won(won)) => Ok(won),
            _ => Err(refusal),
        }
    }

    /// Attempt, pause, attempt …
    fn ask_until(self, head: &mut Head<'a>, start: Moment, deadline: Option<Moment>) -> Result<Won, Refusal> {
        let mut last = false;
        loop {
            last = match head.pause(deadline) {
                Paused::Interrupted => return Err(Refusal::Interrupted),
                // No I/O at the deadline if somebody else goes on with the seat.
                Paused::Deadline if head.has_successor() => return Err(self.verdict(start)),
                Paused::Deadline => true,
                Paused::Over => last,
                Paused::Granted(grant) => match head.win(&grant) {
                    Step::Won(won) => return Ok(won),
                    _ => continue,
                },
            };
            match head.attempt(last) {
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
                Step::Taken => {}
                Step::TooLate => head.plan(None),
            }
            let over = last || deadline.is_some_and(|deadline| deadline <= Moment::now());
            if over && !head.asks_on() {
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
        let grant = Grant::answered(fence, sent, ttl, None);
        Ok(self.hold(token.to_owned(), &grant, None, self.gate.try_enter().ok()).ok())
    }

    /// With the turn comes what the last one left: a lease that was passed on is held without asking
    /// anybody; else the thread is head.
    fn begin(self, turn: Option<Turn<Left>>) -> Begun<'a> {
        let (seat, turn) = match turn.as_ref().and_then(Turn::inherit) {
            Some(Left::Seat(seat)) => (seat.inherited(self.manner.backoff), turn),
            Some(Left::Lease(passed)) => match self.take_over(&passed, turn) {
                Ok(won) => return Begun::Won(won),
                Err(TooLate { turn, .. }) => {
                    self.take_back(&passed.token, passed.ghost.unwrap_or(NotAfter::NONE));
                    (self.new_seat(), turn)
                }
            },
            None => (self.new_seat(), turn),
        };
        Begun::Head(Head::new(self, turn, seat))
    }

    /// Waits in the gate.
    fn turn(self, start: Moment, deadline: Option<Moment>) -> Result<Turn<Left>, Refusal> {
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
        let said = Cell::new(false);
        let say_long = || {
            let long = behind.get() == Some(Busy::Held) && start.after(LONG_WAIT) <= Moment::now();
            if long && !said.replace(true) {
                let key = &self.local.key.text;
                warn!(
                    "lock {key:?} is waited for since {LONG_WAIT:?} behind this very process: locked twice, or a guard leaked?"
                );
            }
        };
        match self.gate.enter(&limit, &|| self.is_interrupted(), &say_long) {
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
