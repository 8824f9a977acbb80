//! What a waiting thread stands on: a mutex, its own handle, and a sleep that another thread can end.
//!
//! The gate and the interrupt name nothing else, so that their interleavings can be model-checked by
//! compiling the same source against other primitives (`tests/models`).

use std::time::Duration;

use crate::clock::Moment;

pub(crate) use parking_lot::Mutex;
pub(crate) use std::thread::{Thread, current};

/// A suspended machine does not count sleeps, so none is longer than this.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Sleeps until `wake`, an `unpark`, or a spurious wake-up: the caller looks again, always.
pub(crate) fn park_until(wake: Moment) {
    std::thread::park_timeout(Moment::now().until(wake).min(LONGEST_SLEEP));
}
