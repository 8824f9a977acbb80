//! What every test stands on: real servers that it starts and ends itself.

pub(crate) mod dice;
#[cfg(feature = "testing")]
mod on_fake;
pub(crate) mod proxy;
pub(crate) mod referees;
pub(crate) mod resource;
pub(crate) mod server;
pub(crate) mod story;
#[cfg(feature = "tls-rustls")]
pub(crate) mod tls;
pub(crate) mod ways;
pub(crate) mod witness;
pub(crate) mod workers;
mod wrapping;

use std::{
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

pub(crate) use proxy::{Fate, Proxy, Way, read_message};
pub(crate) use server::Server;

/// What stalls of a busy machine may add to a time that is promised.
pub(crate) const SLACK: Duration = Duration::from_millis(400);

/// Waits until `condition` is true; panics after `limit`.
#[track_caller]
pub(crate) fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Locks, also when a thread panicked under it: the test has failed then, and this is to say why.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
