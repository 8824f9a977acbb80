//! A mutex and its condition, for threads that sleep for long.
//!
//! Of std, and not of parking_lot: there a sleeping thread stands in a table of the whole process. A forked
//! child inherits the table without the threads, its first thread gets the memory of one that is gone, and
//! with it stands in the table twice: whoever then wakes somebody may walk in a circle for ever. What a
//! sleeper of std leaves to a child is in the object that it sleeps on, which is inert there.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[derive(Default)]
pub(crate) struct Monitor<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    pub(crate) fn new(state: T) -> Monitor<T> {
        Monitor { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A panic under it leaves what it guards as it is: each change is whole before anything may panic.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until somebody calls, or for nothing: the caller looks again.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for so long at most.
    pub(crate) fn wait_for<'a>(&self, state: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn call_one(&self) {
        self.changed.notify_one();
    }

    pub(crate) fn call_all(&self) {
        self.changed.notify_all();
    }
}
