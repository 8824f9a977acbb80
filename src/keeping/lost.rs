//! What is said of a hold that ended before it was released.

use std::{fmt, sync::Arc};

/// A lock that was [lost](crate::guide::leases), for [`LockOptions::on_lost`](crate::LockOptions::on_lost).
///
/// ```
/// use distlock::{LockOptions, LostReason};
///
/// let options = LockOptions::new().on_lost(|lost| match lost.reason {
///     LostReason::HeldTooLong => eprintln!("{} took longer than it may", lost.key),
///     _ => eprintln!("{} was lost, its fence was {}", lost.key, lost.fence),
/// });
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lost {
    /// The lock's key.
    pub key: Arc<str>,
    /// The fence of the guard that lost it.
    pub fence: u64,
    /// How it was lost.
    pub reason: LostReason,
}

/// How a lock was lost; [why locks are](crate::guide::leases#why). [`Lost`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LostReason {
    /// Its lease ran out: Redis could not be reached, or the process stood still.
    Expired,
    /// Somebody else has the key, or took this hold over.
    Taken,
    /// The key is gone: deleted, or forgotten by Redis.
    Deleted,
    /// It was held for its [`Renew::AtMost`](crate::Renew::AtMost).
    HeldTooLong,
}

impl LostReason {
    /// For messages, after "was lost: ".
    pub(crate) fn text(self) -> &'static str {
        match self {
            LostReason::Expired => "its lease ran out",
            LostReason::Taken => "somebody else has it",
            LostReason::Deleted => "its key is gone",
            LostReason::HeldTooLong => "it was held for as long as it may be",
        }
    }
}

/// What a user wants to be called with.
#[derive(Clone)]
pub(crate) struct OnLost(pub(crate) Arc<dyn Fn(&Lost) + Send + Sync>);

impl fmt::Debug for OnLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLost")
    }
}
