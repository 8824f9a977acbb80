//! The lock of old fleets: a time stamp at the key, taken with SETNX, GET and GETSET. For interoperation
//! only.

mod guard;
mod options;

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use crate::client::LockClient;
use crate::clock::Moment;
use crate::error::{About, Result};
use crate::keeping::{Keeper, lease};
use crate::lock::check_key;
use crate::nodes::Stands;
use crate::waiting::{LocalKey, Poll, Polled, Refusal};

pub use guard::TimestampLockGuard;
use options::Checked;
pub use options::TimestampOptions;

/// A lock that speaks the timestamp protocol of old fleets: `SETNX key <end>`, and where that fails `GET`,
/// and `GETSET` once the end is past. **For interoperation only**: a fleet that runs it still, and moves to
/// [`DistLock`](crate::DistLock) program by program, needs the two to exclude each other for a while.
///
/// The value of the key is when the hold ends, in [milliseconds or seconds](crate::StampUnit) since 1970.
/// Whoever finds it past takes the lock. What each of those old clients does in several steps is one script
/// here, so nothing comes between: the old value decides who has the lock, and a loser writes nothing.
///
/// ```no_run
/// use std::time::Duration;
/// use distlock::{LockClient, TimestampLock};
///
/// # fn main() -> distlock::Result<()> {
/// let client = LockClient::open("redis://127.0.0.1/")?;
/// let lock = TimestampLock::new(&client, "lock.orders");
/// let guard = lock.try_lock_for(Duration::from_secs(2))?;
/// // … at most 30 s of work …
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
///
/// # What it lacks
///
/// - **No fence, no renewal**, no turns, no hand-over: the work must end within the
///   [ttl](TimestampOptions::ttl), and nothing orders what comes late. Threads of one client contend as
///   processes do.
/// - **One server**: on a [majority of several](crate::ClientOptions::open_nodes) every call is refused.
/// - **A lost answer costs up to a ttl.** A stamp does not say whose it is, so an attempt whose answer was
///   lost cannot be recognised as one's own: the lock may stay taken until that stamp is over. A release is
///   sent once, for the same reason.
///
/// # The flaws of the protocol
///
/// | flaw | here |
/// |---|---|
/// | each client judges by its own clock: one that is ahead takes what is not over | all that use this type judge by the server's ([`StampClock`](crate::StampClock)); an old client whose clock is ahead still takes ours, and `unlock` says `Lost` |
/// | a loser's GETSET overwrites the winner's stamp with a later one | ours never does. An old client's may: the guard stays valid, since nobody else has the lock, but its release cannot know the stamp: `unlock` says `Lost`, and the lock is free when the later stamp is over |
/// | two that write in the same millisecond write equal stamps, and a stamp is all that a release compares | give each process [digits](TimestampOptions::digits) of its own |
/// | the value does not say who holds | not to be had: `GET` shows an end, and no name |
/// | the key of a crashed holder stays for ever | it has a ttl and goes with its stamp, if [it may](TimestampOptions::keep_key) |
///
/// # Beside a `DistLock`
///
/// On one key with a [`DistLock`](crate::DistLock) each waits until the other's value is gone: to the one a
/// stamp is a holder of another library, to the other a token is no stamp and never past. The stamp of a
/// crashed *old* client has no ttl: no `DistLock` gets the lock until an old client, a `TimestampLock` or
/// an operator takes it away.
#[derive(Clone)]
#[must_use = "a lock locks nothing until one of its lock methods is called"]
pub struct TimestampLock(Arc<Inner>);

struct Inner {
    client: LockClient,
    local: Arc<LocalKey>,
    options: Checked,
}

impl TimestampLock {
    /// A lock for `key` with the default [options](TimestampOptions). No I/O.
    ///
    /// The key stands in Redis as it is; those that a [`DistLock`](crate::DistLock::new) refuses are refused
    /// when they are locked.
    ///
    /// ```no_run
    /// # use distlock::{LockClient, TimestampLock};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// let lock = TimestampLock::new(&client, "lock.orders");
    /// # let _ = lock;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: &LockClient, key: impl AsRef<str>) -> TimestampLock {
        TimestampLock::make(client, key.as_ref(), Checked::default())
    }

    /// A lock for `key` with options of its own. No I/O.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if an option is out of its limits, or the key is
    /// some lock's bookkeeping.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{LockClient, TimestampLock};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// use distlock::{StampUnit, TimestampOptions};
    ///
    /// let options = TimestampOptions::new().unit(StampUnit::Seconds);
    /// let lock = TimestampLock::with_options(&client, "lock.orders", &options)?;
    /// # let _ = lock;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_options(
        client: &LockClient,
        key: impl AsRef<str>,
        options: &TimestampOptions,
    ) -> Result<TimestampLock> {
        let options = options.check()?;
        check_key(key.as_ref())?;
        Ok(TimestampLock::make(client, key.as_ref(), options))
    }

    fn make(client: &LockClient, key: &str, options: Checked) -> TimestampLock {
        TimestampLock(Arc::new(Inner { client: client.clone(), local: client.locals.key(key), options }))
    }

    /// Acquires the lock, blocking until it is free.
    ///
    /// While somebody else's stamp stands this blocks for ever, like a `Mutex`. It fails when Redis has given
    /// no useful answer for [`unreachable_after`](TimestampOptions::unreachable_after) (30 s). It looks again
    /// with pauses of 2 to 50 ms, and holds no connection in between.
    ///
    /// # Errors
    ///
    /// As [`DistLock::lock`](crate::DistLock::lock).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::TimestampLock;
    /// # fn work(lock: &TimestampLock) -> distlock::Result<()> {
    /// let guard = lock.lock()?;
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self) -> Result<TimestampLockGuard> {
        self.wait(None)
    }

    /// Acquires the lock if it is free now, or its stamp over.
    ///
    /// One attempt. Blocks for at most one [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// [`Taken`](crate::ErrorKind::Taken); every other kind but `Interrupted` and `Lost`, at once.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::TimestampLock;
    /// # fn work(lock: &TimestampLock) -> distlock::Result<()> {
    /// match lock.try_lock() {
    ///     Ok(guard) => guard.unlock()?,
    ///     Err(e) if e.is_taken() => println!("an old client has it"),
    ///     Err(e) => return Err(e),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_lock(&self) -> Result<TimestampLockGuard> {
        self.check()?;
        match self.attempt() {
            Ok(Ok(guard)) => Ok(guard),
            Ok(Err(_)) => Err(self.about().refused(Refusal::Taken)),
            Err(failure) => Err(self.about().refused(Refusal::Failed(failure))),
        }
    }

    /// Acquires the lock, blocking for at most `timeout`, and one
    /// [`io_timeout`](crate::ClientOptions::io_timeout) longer where a call is under way at its end.
    ///
    /// `Duration::ZERO` is one attempt. Transient errors are ridden out until then.
    ///
    /// # Errors
    ///
    /// As [`DistLock::try_lock_for`](crate::DistLock::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::TimestampLock;
    /// # fn work(lock: &TimestampLock) -> distlock::Result<()> {
    /// let guard = lock.try_lock_for(Duration::from_secs(2))?;
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_lock_for(&self, timeout: Duration) -> Result<TimestampLockGuard> {
        self.wait(Some(Moment::now().after(timeout)))
    }

    /// The key, as it was given. Does not block.
    ///
    /// ```
    /// # use distlock::{LockClient, TimestampLock};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// assert_eq!(TimestampLock::new(&client, "lock.orders").key(), "lock.orders");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.local.key.text
    }

    fn wait(&self, deadline: Option<Moment>) -> Result<TimestampLockGuard> {
        self.check()?;
        let (name, manner) = (&self.keeper().name, &self.0.options.manner);
        let poll = Poll { name, key: self.key(), manner, deadline };
        poll.run(|| self.attempt()).map_err(|refusal| self.about().refused(refusal))
    }

    fn attempt(&self) -> Polled<TimestampLockGuard> {
        let Inner { client, local, options } = &*self.0;
        let io = client.keeper.io_timeout.min(options.ttl / 2);
        let stamped = match client.keeper.nodes.stamp(&local.key, &options.how, io)? {
            Ok(stamped) => stamped,
            Err(Stands(remaining)) => return Ok(Err(remaining)),
        };
        let valid = lease::valid_until(stamped.sent, stamped.lasts.min(options.ttl));
        let guard = TimestampLockGuard::new(&client.keeper, &local.key, options.how, stamped.stamp, valid, io);
        if guard.is_valid() {
            return Ok(Ok(guard));
        }
        // Over before there was a guard: it is as if it had been somebody else's.
        guard.give_up();
        Ok(Err(Some(Duration::ZERO)))
    }

    fn check(&self) -> Result<()> {
        if self.keeper().is_inherited() {
            return Err(self.about().inherited());
        }
        check_key(self.key())
    }

    fn about(&self) -> About<'_> {
        About { key: &self.0.local.key.text, client: &self.keeper().name }
    }

    fn keeper(&self) -> &Keeper {
        &self.0.client.keeper
    }
}

// As for the client.
impl UnwindSafe for TimestampLock {}
impl RefUnwindSafe for TimestampLock {}

impl fmt::Debug for TimestampLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimestampLock")
            .field("key", &self.key())
            .field("client", &self.keeper().name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use redis::Value;

    use super::*;
    use crate::nodes::Single;
    use crate::server::{Health, Link, Reply, script::Command};

    /// A server whose first answer comes when the stamp that it is about is over.
    #[derive(Debug, Default)]
    struct Slow {
        health: Health,
        calls: AtomicUsize,
    }

    const TTL: Duration = Duration::from_millis(60);

    impl Link for Slow {
        fn call(&self, _: &Command, _: Moment) -> Reply {
            unreachable!("nothing of a stamp is sent twice")
        }

        fn call_once(&self, _: &Command, _: Moment) -> Reply {
            let answer = match self.calls.fetch_add(1, SeqCst) {
                0 => {
                    std::thread::sleep(TTL);
                    "held 60 1764547200000000 1"
                }
                1 => "2 1",
                _ => "held 60 1764547200000000 1",
            };
            Reply { answer: Ok(Value::BulkString(answer.into())), ghost: false, at: Moment::now() }
        }

        fn call_together(&self, _: &[Command], _: Moment) -> Vec<Reply> {
            unreachable!("no replica is asked")
        }

        fn call_all(&self, _: &[Command], _: Moment) -> Vec<Reply> {
            unreachable!("nothing is renewed")
        }

        fn health(&self) -> &Health {
            &self.health
        }
    }

    #[test]
    fn a_stamp_that_was_over_before_there_was_a_guard_becomes_none() {
        let link = Arc::new(Slow::default());
        link.health.clock.set(1_764_547_200_000_000, Moment::now());
        let client = LockClient::of("slow", Arc::new(Single::new(Arc::clone(&link) as _)), Duration::from_secs(1));
        let lock = TimestampLock::with_options(&client, "k", &TimestampOptions::new().ttl(TTL)).unwrap();
        let guard = lock.try_lock_for(Duration::from_secs(5)).unwrap();
        assert!(guard.is_valid());
        assert_eq!(link.calls.load(SeqCst), 3, "the first one was given back, another was taken");
    }
}
