//! The acquisition loop, the only one: attempt, wait, attempt … and one last attempt at the deadline.
//!
//! A thread first waits for its turn in the gate, then asks Redis as the head of its process. It holds
//! no connection while it sleeps. Whatever way it ends (lock, refusal, panic), its seat goes to the
//! next thread or is taken back.

use std::cell::RefCell;

use super::asker::{Asker, Refusal, TooLate, Won};
use super::gate::{Busy, Refused, Turn};
use super::head::{Head, Paused, Step};
use super::interrupt::Interrupt;
use super::own_hold::OwnHold;
use super::seat::Left;
use crate::clock::Moment;
use crate::keeping::{Grant, lease};
use crate::nodes::NotAfter;
use crate::server::Failure;

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
        let own = OwnHold::since(start);
        let mut head = match self.begin(Some(self.turn(start, deadline, &own)?)) {
            Begun::Won(won) => return Ok(won),
            Begun::Head(head) => head,
        };
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
                Step::Taken => own.look(self, || self.local.is_held()),
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
    fn turn(self, start: Moment, deadline: Option<Moment>, own: &OwnHold) -> Result<Turn<Left>, Refusal> {
        if let Ok(turn) = self.gate.try_enter() {
            return Ok(turn);
        }
        let _sleeper = self.manner.interrupt.as_ref().map(Interrupt::sleeper);
        // Why the wait is limited, as of the last look.
        let silence = RefCell::new(None);
        let limit = |busy| {
            if busy == Some(Busy::Held) {
                // Like a Mutex: while it is held here, Redis is not asked, and nothing is missing.
                self.local.news.touch();
                return deadline.unwrap_or(Moment::NEVER);
            }
            deadline.unwrap_or_else(|| {
                let (ends, failure) = self.patience_ends(start);
                *silence.borrow_mut() = failure;
                ends
            })
        };
        let asleep = |busy| own.look(self, || busy == Some(Busy::Held));
        self.gate.enter(&limit, &|| self.is_interrupted(), &asleep).map_err(|refused| match refused {
            Refused::Interrupted => Refusal::Interrupted,
            Refused::Limit => match silence.take() {
                Some(failure) => Refusal::Silent(self.manner.unreachable_after, failure),
                None => self.verdict(start),
            },
        })
    }
}
