//! What a waiting thread stands on: a mutex, its own handle, and a sleep that another thread can end.
//!
//! The gate and the interrupt name nothing else, so that their interleavings can be model-checked by
//! compiling the same source against other primitives (`tests/models`).

use std::{sync::LazyLock, time::Duration};

use crate::clock::Moment;

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::AtomicU64;
pub(crate) use std::thread::{Thread, current};

/// A suspended machine does not count sleeps, so none is longer than this.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Sleeps until `wake`, an `unpark`, or a spurious wake-up: the caller looks again, always.
pub(crate) fn park_until(wake: Moment) {
    std::thread::park_timeout(Moment::now().until(wake).min(LONGEST_SLEEP));
}

/// How long a thread spins at most: about what it takes to wake one.
pub(crate) const SPIN: Duration = Duration::from_micros(25);

/// Can another thread run while one spins?
pub(crate) fn may_spin() -> bool {
    static SEVERAL: LazyLock<bool> = LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|n| n.get() > 1));
    *SEVERAL
}

/// Spins until it is so, for [`SPIN`] at most.
pub(crate) fn spin_until(is_so: impl Fn() -> bool) {
    let end = Moment::now().after(SPIN);
    while Moment::now() < end {
        for _ in 0..16 {
            if is_so() {
                return;
            }
            std::hint::spin_loop();
        }
        // It may be this very processor that it has to come from.
        std::thread::yield_now();
    }
}
