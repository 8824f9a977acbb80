//! How many nodes: what a lock asks of its deployment, whether that is one server or a majority.
//!
//! Times are local: `sent` is when the call that won was sent, and a lease counts from there. Which
//! script says what, and what an error text means, stays below.

#[cfg(feature = "testing")]
mod fake;
mod single;

#[cfg(feature = "testing")]
use std::sync::Weak;
use std::{fmt, sync::Arc, time::Duration};

use crate::clock::Moment;
use crate::server::Failure;
use crate::server::script::{Names, RESERVED};

pub(crate) use crate::server::script::{Condition, Writes, Written};
#[cfg(feature = "testing")]
pub(crate) use fake::Fake;
pub(crate) use single::Single;

/// A lock's key, with the names of everything it has in Redis.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) text: Arc<str>,
    names: Names,
}

impl Key {
    pub(crate) fn new(text: &str) -> Key {
        Key { text: text.into(), names: Names::new(text) }
    }

    /// The condition that the lock is still the lease of this token and fence.
    pub(crate) fn is_of<'a>(&'a self, token: &'a str, fence: u64) -> Condition<'a> {
        Condition::Mine { names: &self.names, token, fence }
    }

    /// The beginning of `text` that makes it some lock's bookkeeping, which cannot be locked.
    pub(crate) fn reserved(text: &str) -> Option<&'static str> {
        RESERVED.into_iter().find(|prefix| text.starts_with(prefix))
    }
}

/// One attempt to take a lock.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) key: &'a Key,
    pub(crate) token: &'a str,
    pub(crate) ttl: u64,
    /// The fence must be above it.
    pub(crate) hint: u64,
    /// How long the attempt may take, whatever the server does.
    pub(crate) io: Duration,
}

/// What came of an attempt.
#[derive(Debug)]
pub(crate) struct Attempted {
    pub(crate) outcome: Result<Outcome, Failure>,
    /// A copy of the attempt may be executed later; not after this.
    pub(crate) ghost: Option<NotAfter>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Granted {
        fence: u64,
        sent: Moment,
    },
    /// Another's, for so long; `None`: it has no ttl.
    Taken {
        remaining: Option<Duration>,
    },
}

/// The server time after which no attempt of an acquisition is executed any more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NotAfter(u64);

impl NotAfter {
    /// No attempt is left that could be executed.
    pub(crate) const NONE: NotAfter = NotAfter(0);
}

/// Something to do for one acquisition, by its caller or in the background.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order<'a> {
    Renew {
        key: &'a Key,
        token: &'a str,
        ttl: u64,
        fence: u64,
    },
    Release {
        key: &'a Key,
        token: &'a str,
    },
    /// Take back whatever an acquisition has, or may still get until then.
    Leave {
        key: &'a Key,
        token: &'a str,
        fence: Option<u64>,
        not_after: NotAfter,
    },
}

/// What an order found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Renewed or released: it was this acquisition's.
    Ours,
    /// There was no lock.
    Gone,
    /// Another's: untouched.
    Others,
    /// A `Leave` that was executed late enough to be the last.
    Final,
    /// A `Leave` that must be repeated.
    NotYet,
}

/// What came of an order.
#[derive(Debug)]
pub(crate) struct Performed {
    pub(crate) verdict: Result<Verdict, Failure>,
    /// It may have been executed, or may yet be, without its answer being this one.
    pub(crate) ghost: bool,
}

/// A guarded write without an answer.
#[derive(Debug)]
pub(crate) struct Unwritten {
    pub(crate) failure: Failure,
    /// It may have been executed, or may yet be.
    pub(crate) ghost: bool,
}

/// Who has a lock.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) token: String,
    pub(crate) remaining: Option<Duration>,
}

/// One deployment.
pub(crate) trait Nodes: Send + Sync + fmt::Debug {
    /// Asks for the lock once.
    fn acquire(&self, attempt: &Attempt<'_>) -> Attempted;

    /// Takes over a hold by its token; `None` if it is gone.
    fn resume(&self, key: &Key, token: &str, ttl: u64, io: Duration) -> Result<Option<(u64, Moment)>, Failure>;

    /// Performs an order in its caller.
    fn perform(&self, order: &Order<'_>, io: Duration) -> Performed;

    /// Performs many orders in one batch, in the background.
    fn perform_all(&self, orders: &[Order<'_>], io: Duration) -> Vec<Performed>;

    /// Frees a lock, whoever owns it; was there one?
    fn force(&self, key: &Key, io: Duration) -> Result<bool, Failure>;

    /// Runs what the user wants to run if the condition holds, in one step, and at most once.
    fn write(&self, condition: Condition<'_>, writes: &Writes<'_>, io: Duration) -> Result<Written, Unwritten>;

    fn owner(&self, key: &Key, io: Duration) -> Result<Option<Owner>, Failure>;

    /// Asks for everything that a lock needs: address, credentials, rights, version.
    fn ping(&self, io: Duration) -> Result<(), Failure>;

    /// The last thing that was heard of the deployment is that it does not answer.
    fn is_down(&self) -> bool;

    /// How long until the servers' clocks have passed `not_after`.
    fn until(&self, not_after: NotAfter) -> Duration;

    /// From now on there is a hold of this token. A server has no use for that.
    #[cfg(feature = "testing")]
    fn kept(&self, _key: &Key, _token: &str, _hold: Weak<dyn Lapse>) {}
}

/// A hold whose deployment can have it know that its lease is over.
#[cfg(feature = "testing")]
pub(crate) trait Lapse: Send + Sync {
    fn lapse(&self);
}
