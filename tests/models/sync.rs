//! Shuttle's primitives under the names that the crate uses.

use std::time::Duration;

use shuttle::sync::MutexGuard;

use crate::clock::{self, Moment};

pub(crate) use shuttle::sync::atomic::AtomicU64;
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

/// Of the model's clock, which stands: every hand-off is a brisk one.
pub(crate) const SPIN: Duration = Duration::from_micros(25);

pub(crate) fn may_spin() -> bool {
    true
}

/// It may be seen, or not in time.
pub(crate) fn spin_until(is_so: impl Fn() -> bool) {
    for _ in 0..2 {
        if is_so() {
            return;
        }
        shuttle::thread::yield_now();
    }
}
