//! How many nodes: what a lock asks of its deployment, whether that is one server or a majority.
//!
//! Times are local: `sent` is when the call that won was sent, and a lease counts from there. Which
//! script says what, and what an error text means, stays below.

#[cfg(feature = "testing")]
mod fake;
#[cfg(unix)]
mod quorum;
mod single;

#[cfg(feature = "testing")]
use std::sync::Weak;
use std::{fmt, sync::Arc, time::Duration};

use crate::clock::Moment;
use crate::server::script::{Left, Names, RESERVED, Released, Renewed};
use crate::server::{Class, Failure};
use crate::stamp::{StampClock, StampUnit};

pub(crate) use crate::server::script::{Condition, HandsOver, Message, Queued, Unstamp, Writes, Written};
pub(crate) use crate::server::{Go, Heard};
#[cfg(feature = "testing")]
pub(crate) use fake::Fake;
#[cfg(unix)]
pub(crate) use quorum::Quorum;
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
    pub(crate) ask: Ask<'a>,
}

/// What an attempt wants where the lock is another's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask<'a> {
    /// To be told so.
    Try,
    /// A place in its queue: a new one (0) or its own, for `beat` ms without a word; with a beat of 0 none
    /// any more. `channel`: where it would hear that it has the lock; empty: it asks again.
    Wait { place: u64, beat: u64, channel: &'a str },
}

/// A `wait` that was sent: a message of a grant names it, and the lease counts from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) at: Moment,
}

/// What came of an attempt.
#[derive(Debug)]
pub(crate) struct Attempted {
    pub(crate) outcome: Result<Outcome, Failure>,
    /// A copy of the attempt may be executed later; not after this.
    pub(crate) ghost: Option<NotAfter>,
    /// Its calls, if it was a `wait`.
    pub(crate) calls: Vec<Sent>,
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
        hands_over: HandsOver,
    },
    /// Another's, and this is the place in its queue, as of the call of this number.
    Queued(u64, Queued),
}

/// A PTTL; `None` is a key that never expires.
pub(crate) fn remaining(pttl: i64) -> Option<Duration> {
    match pttl {
        -1 => None,
        pttl => Some(Duration::from_millis(u64::try_from(pttl).unwrap_or(0))),
    }
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

impl From<Renewed> for Verdict {
    fn from(renewed: Renewed) -> Verdict {
        match renewed {
            Renewed::Yes => Verdict::Ours,
            Renewed::Others => Verdict::Others,
            Renewed::Gone => Verdict::Gone,
        }
    }
}

impl From<Released> for Verdict {
    fn from(released: Released) -> Verdict {
        match released {
            Released::Freed | Released::HandedOver | Released::Unannounced => Verdict::Ours,
            Released::Others => Verdict::Others,
            Released::Gone => Verdict::Gone,
        }
    }
}

impl From<Left> for Verdict {
    fn from(left: Left) -> Verdict {
        match left {
            Left::Final => Verdict::Final,
            Left::NotYet => Verdict::NotYet,
        }
    }
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

/// How a lock of the timestamp protocol writes its stamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamping {
    pub(crate) ttl: u64,
    pub(crate) unit: StampUnit,
    pub(crate) clock: StampClock,
    /// What the low digits of a stamp are to be.
    pub(crate) digits: Option<u64>,
    /// The key goes with its stamp.
    pub(crate) expires: bool,
}

/// A stamp that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamped {
    pub(crate) stamp: u64,
    pub(crate) sent: Moment,
    /// So long after it was sent the stamp is over, by the clock that judges it.
    pub(crate) lasts: Duration,
}

/// Somebody else's stamp stands, for so long; `None`: for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stands(pub(crate) Option<Duration>);

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

    /// Is a grant good only if replicas have it? Then no message is believed.
    fn asks_replicas(&self) -> bool {
        false
    }

    /// Is an attempt that fails taken back, and the next one another acquisition? So among several nodes, of
    /// which some may have given their vote.
    fn votes(&self) -> bool {
        false
    }

    /// Can a subscription be had here?
    fn can_listen(&self) -> bool {
        false
    }

    /// Listens to a channel on a connection of its own, until that breaks or `hear` says to stop.
    fn listen(&self, _channel: &str, _io: Duration, _hear: &mut dyn FnMut(Heard<'_>) -> Go) -> Result<(), Failure> {
        Err(Failure::with_text(Class::Setup, "nothing can be listened to here"))
    }

    /// May this client tell a waiter that it has the lock, as far as is known?
    fn can_announce(&self) -> bool {
        true
    }

    /// How long until the servers' clocks have passed `not_after`.
    fn until(&self, not_after: NotAfter) -> Duration;

    /// Writes a stamp if there is none, or if it is over.
    fn stamp(&self, _key: &Key, _how: &Stamping, _io: Duration) -> Result<Result<Stamped, Stands>, Failure> {
        Err(no_stamps())
    }

    /// Deletes a stamp if it stands, and is not over; in one call that is never repeated, since an equal
    /// stamp may be another's.
    fn unstamp(&self, _key: &Key, _how: &Stamping, _stamp: u64, _io: Duration) -> Result<Unstamp, Failure> {
        Err(no_stamps())
    }

    /// From now on there is a hold of this token. A server has no use for that.
    #[cfg(feature = "testing")]
    fn kept(&self, _key: &Key, _token: &str, _hold: Weak<dyn Lapse>) {}
}

/// The protocol is one server's.
fn no_stamps() -> Failure {
    Failure::with_text(Class::Setup, "a timestamp lock needs one Redis server")
}

/// A hold whose deployment can have it know that its lease is over.
#[cfg(feature = "testing")]
pub(crate) trait Lapse: Send + Sync {
    fn lapse(&self);
}
