//! The head of a gate: the one thread of its process that asks Redis for the key, its attempts and
//! its pauses. It holds no connection while it sleeps.
//!
//! | it asks with | where the lock is another's | and then |
//! |---|---|---|
//! | `try` | it enters the queue at once, if it is heard or the holder hands over | asks with `wait` |
//! | `try` | else | spins with backoff |
//! | `wait` | it has its place | sleeps until a message, or until it looks by itself |
//!
//! Once it asked with `wait` it never asks with `try` again under the same token.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use log::trace;

use super::asker::{Asker, Refusal, TooLate, Won};
use super::gate::Turn;
use super::interrupt::Interrupt;
use super::mailbox::Mail;
use super::place::{self, Belief, Place};
use super::saying;
use super::seat::{Left, Seat};
use crate::clock::Moment;
use crate::keeping::{Grant, lease};
use crate::nodes::{Ask, Attempt, Attempted, HandsOver, NotAfter, Outcome, Queued, remaining};
use crate::server::{Class, Failure};
use crate::sync::park_until;

/// What came of an attempt.
pub(super) enum Step {
    Won(Won),
    /// Another's, for so long; the next attempt is planned.
    Taken,
    Failed(Failure),
    /// Granted, and over before the answer could be used.
    TooLate,
}

/// How a pause ended.
pub(super) enum Paused {
    Over,
    Deadline,
    Interrupted,
    /// A message said that the lock is mine.
    Granted(Grant),
}

/// A PTTL is rounded, and the key must be gone when we ask.
pub(super) const AFTER_EXPIRY: Duration = Duration::from_millis(2);
/// A granted lease is short: a section that is longer than this has it renewed.
const BRIEF: Duration = Duration::from_millis(100);

/// The thread that asks Redis, with what it knows.
pub(super) struct Head<'a> {
    asker: Asker<'a>,
    turn: Option<Turn<Left>>,
    /// There until the lock is won: whatever panics, it is handed over or taken back.
    seat: Option<Seat>,
}

impl<'a> Head<'a> {
    pub(super) fn new(asker: Asker<'a>, turn: Option<Turn<Left>>, seat: Seat) -> Head<'a> {
        Head { asker, turn, seat: Some(seat) }
    }

    pub(super) fn only_attempt(mut self) -> Result<Won, Refusal> {
        match self.ask(Ask::Try) {
            Step::Won(won) => Ok(won),
            Step::Taken => Err(Refusal::Taken),
            Step::Failed(failure) => Err(Refusal::Failed(failure)),
            Step::TooLate => {
                let late = "the grant came when its lease was over";
                Err(Refusal::Failed(Failure::with_text(Class::Unavailable, late)))
            }
        }
    }

    /// One attempt; the last one takes the lock or leaves the queue.
    pub(super) fn attempt(&mut self, last: bool) -> Step {
        let Asker { shape, local, .. } = self.asker;
        let Some(place) = self.seat.as_ref().and_then(|seat| seat.place.as_ref()) else {
            return self.ask(Ask::Try);
        };
        let place = place.place;
        let beat = if last { 0 } else { lease::server_millis(place::beat(shape.terms.ttl)) };
        let channel = local.listener.channel();
        self.ask(Ask::Wait { place, beat, channel })
    }

    fn ask(&mut self, ask: Ask<'_>) -> Step {
        let Asker { keeper, local, shape, .. } = self.asker;
        let Some(seat) = &mut self.seat else { return Step::TooLate };
        let ttl = shape.terms.first_ttl();
        let io = match ask {
            Ask::Try => keeper.io(&shape.terms),
            // One that is unanswered when the next is due is given up.
            Ask::Wait { .. } => keeper.io(&shape.terms).min(place::poll(shape.terms.ttl)),
        };
        let attempt = Attempt {
            key: &local.key,
            token: &seat.token,
            ttl: lease::server_millis(ttl),
            hint: local.hint(),
            io,
            ask,
        };
        let Attempted { outcome, ghost, calls } = keeper.nodes.acquire(&attempt);
        seat.ghost = seat.ghost.max(ghost);
        if let Some(place) = &mut seat.place {
            place.sent(calls);
        }
        let step = match outcome {
            Ok(Outcome::Granted { fence, sent }) => {
                local.news.answered();
                local.note_queue(matches!(ask, Ask::Wait { place: 1.., .. }));
                if !keeper.nodes.asks_replicas() && seat.place.as_ref().is_some_and(|place| place.was_not_told()) {
                    local.listener.doubt();
                }
                let grant = Grant::answered(fence, sent, ttl, seat.ghost);
                self.win(&grant)
            }
            Ok(Outcome::Taken { remaining, hands_over }) => {
                local.news.answered();
                trace!("lock {:?} is taken, for {remaining:?} more", local.key.text);
                self.taken(remaining, hands_over);
                Step::Taken
            }
            Ok(Outcome::Queued(number, queued)) => {
                local.news.answered();
                trace!("lock {:?} is taken, rank {:?}", local.key.text, queued.rank);
                self.queued(number, &queued, ask);
                Step::Taken
            }
            Err(failure) if matches!(ask, Ask::Wait { .. }) && is_refusal(&failure) => {
                local.listener.refused(&failure);
                self.leave_queue();
                Step::Taken
            }
            Err(failure) => {
                local.failed(&failure);
                if failure.class == Class::Uncopied {
                    self.start_again();
                }
                Step::Failed(failure)
            }
        };
        if matches!(step, Step::Taken | Step::Failed(_)) && keeper.nodes.votes() {
            self.begin_anew();
        }
        step
    }

    /// An attempt that fails among several nodes is taken back: a release of it that comes late must not be one
    /// of the next, so that gets another token.
    fn begin_anew(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        if let Some(not_after) = seat.ghost {
            self.asker.take_back(&seat.token, not_after);
        }
        let Seat { next, pauses, said, unqueued, .. } = seat;
        self.seat = Some(Seat { next, pauses, said, unqueued, ..self.asker.fresh_seat() });
    }

    /// Somebody else has it: enters the queue where that is of use, and else plans the next attempt.
    fn taken(&mut self, remaining: Option<Duration>, hands_over: HandsOver) {
        let Asker { local, shape, manner, .. } = self.asker;
        if shape.in_turn {
            local.listener.start();
        }
        let of_use = local.listener.is_heard() || hands_over == HandsOver::Yes;
        match &mut self.seat {
            Some(seat) if shape.in_turn && of_use && !seat.unqueued && local.listener.can_queue() => {
                seat.place = Some(enter(local, &seat.token, manner.backoff));
                seat.next = Moment::PAST;
            }
            _ => self.plan(remaining),
        }
        self.say_endless(remaining);
    }

    fn queued(&mut self, number: u64, queued: &Queued, ask: Ask<'_>) {
        let Asker { local, shape, .. } = self.asker;
        local.note_queue(true);
        if let Ask::Wait { channel, beat: 1.., .. } = ask
            && !channel.is_empty()
        {
            local.listener.seen(queued.push);
        }
        let Some(Seat { place: Some(place), next, .. }) = &mut self.seat else { return };
        place.queued(number, queued);
        *next = if queued.again {
            Moment::PAST
        } else {
            Moment::now().after(place.pause(queued, shape.terms.ttl, random()))
        };
        self.say_endless(remaining(queued.pttl));
    }

    /// The queue cannot be had: back to spinning, under another token.
    fn leave_queue(&mut self) {
        self.start_again();
        if let Some(seat) = &mut self.seat {
            seat.unqueued = true;
        }
    }

    /// What was acquired so far is taken back, and another acquisition begun.
    fn start_again(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        if let Some(not_after) = seat.remains() {
            self.asker.take_back(&seat.token, not_after);
        }
        let fresh = self.asker.fresh_seat();
        self.seat = Some(Seat { pauses: seat.pauses, said: seat.said, unqueued: seat.unqueued, ..fresh });
    }

    /// Nobody else's code runs from here until there is a guard.
    pub(super) fn win(&mut self, grant: &Grant) -> Step {
        let Some(seat) = self.seat.take() else { return Step::TooLate };
        let enrolled = seat.place.map(|place| place.enrolled as _);
        match self.asker.hold(seat.token, grant, enrolled, self.turn.take()) {
            Ok(won) => Step::Won(won),
            Err(TooLate { held, turn }) => {
                self.asker.take_back(&held.token, grant.ghost.unwrap_or(NotAfter::NONE));
                self.turn = turn;
                let fresh = self.asker.new_seat();
                self.seat = Some(Seat { pauses: seat.pauses, said: seat.said, unqueued: seat.unqueued, ..fresh });
                Step::TooLate
            }
        }
    }

    /// Sets the time of the next attempt: by the backoff, and not after the holder's ttl is over.
    pub(super) fn plan(&mut self, remaining: Option<Duration>) {
        let Some(seat) = &mut self.seat else { return };
        let pause = seat.pauses.next(random());
        if pause.is_zero() {
            std::thread::yield_now();
        }
        seat.next = Moment::now().after(remaining.map_or(pause, |ttl| pause.min(ttl + AFTER_EXPIRY)));
    }

    /// Sleeps until the next attempt is due, or a message says that there need not be one.
    pub(super) fn pause(&self, deadline: Option<Moment>) -> Paused {
        let Some(seat) = &self.seat else { return Paused::Over };
        if seat.place.is_none() && seat.next <= Moment::now() && !self.asker.is_interrupted() {
            return Paused::Over;
        }
        let _sleeper = self.asker.manner.interrupt.as_ref().map(Interrupt::sleeper);
        loop {
            // Before the deadline and the interrupt: a grant that is there wins over them.
            match self.look(seat) {
                Look::Granted(grant) => return Paused::Granted(grant),
                Look::Ask => return Paused::Over,
                Look::Nothing => {}
            }
            let now = Moment::now();
            if self.asker.is_interrupted() {
                return Paused::Interrupted;
            }
            if now >= seat.next {
                return Paused::Over;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Paused::Deadline;
            }
            // Woken by the mailbox (`put`, `call`), by the interrupt, or by the clock.
            park_until(deadline.map_or(seat.next, |deadline| seat.next.min(deadline)));
        }
    }

    /// A grant that has come for this seat; else an heir asks at once if there is a doubt.
    pub(super) fn granted(&mut self) -> Option<Grant> {
        match self.look(self.seat.as_ref()?) {
            Look::Granted(grant) => return Some(grant),
            Look::Ask => self.seat.as_mut()?.next = Moment::PAST,
            Look::Nothing => {}
        }
        None
    }

    /// What has come for this seat?
    fn look(&self, seat: &Seat) -> Look {
        let Some(place) = &seat.place else { return Look::Nothing };
        let announced = match place.enrolled.mailbox.take() {
            Mail::Grant(announced) => announced,
            Mail::Call => return Look::Ask,
            Mail::Nothing => return Look::Nothing,
        };
        let Asker { keeper, local, shape, .. } = self.asker;
        let now = Moment::now();
        // Replicas are asked with an answer, and a message has none.
        let believable = shape.terms.renews() && !keeper.nodes.asks_replicas();
        match place.believe(announced, local.hint(), believable, now) {
            Belief::Mine { sent, px, fence } => {
                let valid = lease::valid_until(sent, px);
                let due = now.after((now.until(valid) / 4).min(BRIEF));
                Look::Granted(Grant { fence, sent, ttl: px, ghost: seat.ghost, acquired: now, due: Some(due) })
            }
            Belief::Confirm => Look::Ask,
            Belief::Stale => Look::Nothing,
        }
    }

    /// The last call cleared as many dead waiters as it may, and there are more: ask on, deadline or not.
    pub(super) fn asks_on(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.place.as_ref().is_some_and(|place| place.again))
    }

    pub(super) fn has_successor(&self) -> bool {
        self.turn.as_ref().is_some_and(Turn::has_successor)
    }

    fn say_endless(&mut self, remaining: Option<Duration>) {
        let Some(seat) = self.seat.as_mut().filter(|_| remaining.is_none()) else { return };
        if !std::mem::replace(&mut seat.said.endless, true) {
            saying::endless(&self.asker.local.key.text);
        }
    }

    /// A wrong address must not be half a minute of silence.
    pub(super) fn say_failing(&mut self, failure: &Failure, deadline: Option<Moment>) {
        let Some(seat) = self.seat.as_mut().filter(|seat| !seat.said.failing) else { return };
        seat.said.failing = true;
        saying::failing(&self.asker.keeper.name, failure, deadline, self.asker.manner.unreachable_after);
    }
}

enum Look {
    Granted(Grant),
    Ask,
    Nothing,
}

/// Before the first `wait` of a token leaves.
pub(super) fn enter(local: &super::LocalKey, token: &str, backoff: super::Backoff) -> Box<Place> {
    let enrolled = local.listener.enroll(&local.key, token);
    enrolled.mailbox.own();
    Box::new(Place::new(enrolled, backoff))
}

/// What the queue is refused with: no right, a helper key of another type, no memory.
fn is_refusal(failure: &Failure) -> bool {
    matches!(failure.class, Class::Denied | Class::WrongType) || failure.to_string().starts_with("OOM")
}

pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        let left = match self.turn.take() {
            Some(turn) => turn.hand_over(Left::Seat(seat)),
            None => Err(Left::Seat(seat)),
        };
        if let Err(Left::Seat(seat)) = left
            && let Some(not_after) = seat.remains()
        {
            let Seat { token, place, .. } = seat;
            // Strangers from here on: a grant that is announced still is passed on at once.
            drop(place);
            self.asker.take_back(&token, not_after);
        }
    }
}
