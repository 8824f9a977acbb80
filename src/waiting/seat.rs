//! What a head knows, and its successor inherits as it is: one acquisition, over all its threads.

use std::sync::Arc;

use crate::clock::Moment;
use crate::keeping::Held;
use crate::nodes::NotAfter;

use super::backoff::{Backoff, Pauses};

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
    /// What was logged once and is not again.
    pub(crate) said: Said,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    pub(crate) failing: bool,
    pub(crate) endless: bool,
}

impl Seat {
    /// For an heir that is paced otherwise: it waits no longer than by its own pauses.
    pub(crate) fn paced_by(mut self, backoff: Backoff) -> Seat {
        if !self.pauses.are_of(backoff) {
            self.pauses = Pauses::new(backoff);
            self.next = self.next.min(Moment::now().after(backoff.cap));
        }
        self
    }

    pub(crate) fn new(token: String, backoff: Backoff) -> Seat {
        Seat { token, next: Moment::PAST, pauses: Pauses::new(backoff), ghost: None, said: Said::default() }
    }
}
