//! What a head knows, and its successor inherits as it is: one acquisition, over all its threads.

use std::sync::Arc;

use super::backoff::{Backoff, Pauses};
use super::place::Place;
use crate::clock::Moment;
use crate::keeping::Held;
use crate::nodes::NotAfter;

/// What a thread leaves to the next one in the gate.
pub(crate) enum Left {
    /// A head gave up: its acquisition goes on.
    Seat(Seat),
    /// A holder passed its lease on.
    Lease(Arc<Held>),
}

#[derive(Debug)]
pub(crate) struct Seat {
    /// Names the acquisition over all its attempts; never used again.
    pub(crate) token: String,
    /// When to ask next.
    pub(crate) next: Moment,
    pub(crate) pauses: Pauses,
    /// A copy of an attempt may be executed until then.
    pub(crate) ghost: Option<NotAfter>,
    /// Its place in the lock's queue; without one it asks with `try`.
    pub(crate) place: Option<Box<Place>>,
    /// The queue was refused: this acquisition does without.
    pub(crate) unqueued: bool,
    /// What was logged once and is not again.
    pub(crate) said: Said,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    pub(crate) failing: bool,
    pub(crate) endless: bool,
}

impl Seat {
    pub(crate) fn new(token: String, backoff: Backoff) -> Seat {
        Seat {
            token,
            next: Moment::PAST,
            pauses: Pauses::new(backoff),
            ghost: None,
            place: None,
            unqueued: false,
            said: Said::default(),
        }
    }

    /// For an heir, which may be paced otherwise: it waits no longer than by its own pauses, and from now
    /// on it is the one that a message wakes.
    pub(crate) fn inherited(mut self, backoff: Backoff) -> Seat {
        if !self.pauses.are_of(backoff) {
            self.pauses = Pauses::new(backoff);
            if self.place.is_none() {
                self.next = self.next.min(Moment::now().after(backoff.cap));
            }
        }
        if let Some(place) = &self.place {
            place.enrolled.mailbox.own();
        }
        self
    }

    /// What Redis may have or get of it, if anything: what is to be taken back when it ends.
    pub(crate) fn remains(&self) -> Option<NotAfter> {
        let entered = self.place.as_ref().is_some_and(|place| place.entered);
        self.ghost.or(entered.then_some(NotAfter::NONE))
    }
}
