//! Shuttle's primitives under the names that the crate uses.

use shuttle::sync::MutexGuard;

use crate::clock::{self, Moment};

pub(crate) use shuttle::thread::{Thread, current};

#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Sleeps until it is woken; by the clock only if there is a time at which it would be.
pub(crate) fn park_until(wake: Moment) {
    if wake <= Moment::now() {
        return;
    }
    if wake != Moment::NEVER {
        clock::sleeps(current());
    }
    shuttle::thread::park();
}
