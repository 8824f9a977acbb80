//! What the calls of all threads have learned of one server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::failure::{Class, Failure};
use super::server_clock::ServerClock;
use crate::clock::Moment;

#[derive(Debug, Default)]
pub(crate) struct Health {
    pub(crate) clock: ServerClock,
    /// Raised when a server turns out to be a replica: connections of an older generation are dropped.
    generation: AtomicU64,
    /// When the server last answered.
    answered: AtomicU64,
    /// The last thing that I/O with this server did was to fail.
    down: AtomicBool,
    /// Guards the last failure of I/O, for callers that did not get as far as a connection.
    last_failure: Mutex<Option<Failure>>,
}

impl Health {
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Relaxed)
    }

    /// Takes note of an answer at `at`, or of its absence.
    pub(crate) fn note<T>(&self, answer: &Result<T, Failure>, at: Moment) {
        match answer {
            Err(failure) if failure.class == Class::Unreachable => {
                self.down.store(true, Relaxed);
                *self.last_failure.lock() = Some(failure.clone());
            }
            Err(failure) if failure.class == Class::Role => {
                self.generation.fetch_add(1, Relaxed);
            }
            Err(failure) if failure.class == Class::Exhausted => {}
            _ => {
                self.answered.store(at.to_bits(), Relaxed);
                self.down.store(false, Relaxed);
            }
        }
    }

    /// Did the server answer anything since `start`?
    pub(crate) fn has_answered_since(&self, start: Moment) -> bool {
        Moment::from_bits(self.answered.load(Relaxed)) >= start
    }

    /// What the last I/O failed with, if it failed.
    pub(crate) fn why_down(&self) -> Option<Failure> {
        if self.is_down() { self.last_failure.lock().clone() } else { None }
    }
}
