//! What every test stands on: real servers that it starts and ends itself.

pub(crate) mod server;

use std::time::{Duration, Instant};

pub(crate) use server::Server;

/// Waits until `condition` is true; panics after `limit`.
#[track_caller]
pub(crate) fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
