//! The laws of the lock, each on every way of building one.

mod exclusion;
mod expiry;
mod foreign;
mod handing;
mod misuse;
mod waiting;

use std::time::Duration;

use distlock::{DistLock, LockOptions, Renew};

use crate::support::ways::Way;

/// Long enough for every machine, and no test waits for it.
const LONG: Duration = Duration::from_secs(10);

fn lock(way: &Way, key: &str) -> DistLock {
    DistLock::new(&way.client(), key)
}

/// A lock that is not renewed.
fn brief(way: &Way, key: &str, ttl: Duration) -> DistLock {
    let options = LockOptions::new().ttl(ttl).renew(Renew::Never);
    DistLock::with_options(&way.client(), key, &options).unwrap()
}
