//! What is logged once a wait, whoever waits.

use std::time::Duration;

use log::warn;

use crate::clock::Moment;
use crate::server::Failure;

/// Nobody gets a lock whose holder has set no end.
pub(super) fn endless(key: &str) {
    warn!("lock {key:?} is held without a ttl: unless its holder releases it, nobody gets it");
}

/// A wrong address must not be half a minute of silence.
pub(super) fn failing(name: &str, failure: &Failure, deadline: Option<Moment>, limit: Duration) {
    match deadline {
        Some(deadline) => {
            let left = Moment::now().until(deadline);
            warn!("redis {name:?} gives no lock, trying for {left:?} more: {failure}");
        }
        None if limit == Duration::MAX => warn!("redis {name:?} gives no lock, trying until it does: {failure}"),
        None => warn!("redis {name:?} gives no lock, trying for {limit:?}: {failure}"),
    }
}
