//! The lock and its guard: the public face of acquiring, keeping and releasing.

mod giving;
mod guard;
mod guarded;
mod operators;

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::{Duration, Instant},
};

use log::{Level, debug, log_enabled};

use crate::client::LockClient;
use crate::clock::Moment;
use crate::error::{About, Error, Result};
use crate::nodes::Key;
use crate::options::{Checked, LockOptions};
use crate::waiting::{Asker, Gate, Left, LocalKey, Refusal, Won};

pub use guard::DistLockGuard;
pub use operators::Holder;

/// A mutex for one key, across the threads, processes and machines that share a Redis deployment.
///
/// It guards no data: what it protects is elsewhere, in a database or a file. Making one does no I/O
/// and is cheap enough to do for each request. Locks with the same key on the same deployment exclude
/// each other, whichever client, process or machine they are made in.
///
/// A lock is a lease: Redis keeps it for a [ttl](LockOptions::ttl) (30 s), and it is renewed while the
/// guard lives. **[A lease can be lost](crate::guide::leases)**: when Redis cannot be reached for that long,
/// when the process is stopped for that long, when somebody deletes the key. Then
/// [`is_valid`](DistLockGuard::is_valid) is false, [`unlock`](DistLockGuard::unlock) says `Lost`, and the
/// [fence](DistLockGuard::fence) lets the resource refuse what comes late.
///
/// Cloning one is cheap; clones are the same lock.
///
/// ```no_run
/// use distlock::{DistLock, LockClient};
///
/// # fn main() -> distlock::Result<()> {
/// let client = LockClient::open("redis://127.0.0.1/")?;
/// let lock = DistLock::new(&client, "orders:42");
/// let guard = lock.lock()?;
/// println!("mine, fence {}", guard.fence());
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a lock locks nothing until one of its lock methods is called"]
pub struct DistLock(Arc<Inner>);

struct Inner {
    client: LockClient,
    local: Arc<LocalKey>,
    gate: Arc<Gate<Left>>,
    options: Checked,
}

impl DistLock {
    /// A lock for `key` with the default [options](LockOptions). No I/O.
    ///
    /// Any text is a key and stands in Redis as it is. Keys that begin with `distlock:fence`,
    /// `distlock:queue` or `distlock:waiters` are the crate's own bookkeeping: locking one is refused
    /// with [`InvalidOption`](crate::ErrorKind::InvalidOption).
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// let id = 42;
    /// let lock = DistLock::new(&client, format!("shop:orders:{id}"));
    /// # let _ = lock;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: &LockClient, key: impl AsRef<str>) -> DistLock {
        DistLock::make(client, key.as_ref(), Checked::default())
    }

    /// A lock for `key` with options of its own. No I/O.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if an option is out of its limits, or the key
    /// is the crate's own bookkeeping.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// use std::time::Duration;
    /// use distlock::LockOptions;
    ///
    /// const REPORT: LockOptions = LockOptions::new().ttl(Duration::from_secs(60));
    /// let lock = DistLock::with_options(&client, "report", &REPORT)?;
    /// # let _ = lock;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_options(client: &LockClient, key: impl AsRef<str>, options: &LockOptions) -> Result<DistLock> {
        let options = options.check()?;
        check_key(key.as_ref())?;
        Ok(DistLock::make(client, key.as_ref(), options))
    }

    fn make(client: &LockClient, key: &str, mut options: Checked) -> DistLock {
        if client.keeper.nodes.votes() {
            // There is no queue, and who asks again at once splits the vote again.
            options.shape.in_turn = false;
            options.manner.backoff = options.manner.backoff.spins(0);
        }
        let local = client.locals.key(key);
        let gate = local.gate(&options.shape);
        DistLock(Arc::new(Inner { client: client.clone(), local, gate, options }))
    }

    /// Acquires the lock, blocking until it is free.
    ///
    /// While somebody else holds it this blocks for ever, like a `Mutex`. It fails when Redis has given no
    /// useful answer for [`unreachable_after`](LockOptions::unreachable_after) (30 s), counted from the
    /// later of the call's start and the last useful answer for this key that any thread of this client
    /// got. The first failure of a wait is logged.
    ///
    /// Threads of one client get the lock in the order in which they asked, and so do processes that
    /// [wait in turn](crate::Wait::InTurn); a process may pass it among its threads for
    /// [a moment](LockOptions::local_passes) first. Nobody holds a pooled connection while waiting. Locking a key that the same
    /// thread holds waits for ever. In a request handler use [`try_lock_for`](DistLock::try_lock_for).
    ///
    /// # Errors
    ///
    /// [`Unreachable`](crate::ErrorKind::Unreachable), [`Exhausted`](crate::ErrorKind::Exhausted) and
    /// [`Unavailable`](crate::ErrorKind::Unavailable) after that time;
    /// [`Denied`](crate::ErrorKind::Denied), [`WrongType`](crate::ErrorKind::WrongType),
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption), [`Protocol`](crate::ErrorKind::Protocol) at
    /// once; [`Interrupted`](crate::ErrorKind::Interrupted).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// let guard = DistLock::new(&client, "orders:42").lock()?;
    /// // … the work …
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self) -> Result<DistLockGuard> {
        self.guard(|asker| asker.wait(None))
    }

    /// Acquires the lock if it is free now.
    ///
    /// One attempt (one more where a pooled connection turns out to be closed); none while this client
    /// holds the key. Blocks for at most one [`io_timeout`](crate::ClientOptions::io_timeout); a refused
    /// port takes milliseconds.
    ///
    /// # Errors
    ///
    /// [`Taken`](crate::ErrorKind::Taken); every other kind but `Interrupted` and `Lost`, at once.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// match DistLock::new(&client, "report").try_lock() {
    ///     Ok(guard) => guard.unlock()?, // after sending it
    ///     Err(e) if e.is_taken() => println!("another instance sends it"),
    ///     Err(e) => return Err(e),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_lock(&self) -> Result<DistLockGuard> {
        self.guard(|asker| asker.once())
    }

    /// Acquires the lock, blocking for at most `timeout`.
    ///
    /// One [`io_timeout`](crate::ClientOptions::io_timeout) longer where a call is under way at its end.
    /// `Duration::ZERO` is one attempt. Transient errors are ridden out until then.
    ///
    /// # Errors
    ///
    /// At the deadline what the last attempt for the key said: [`Taken`](crate::ErrorKind::Taken), or
    /// its transient error; other kinds as for [`lock`](DistLock::lock), at once.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// use std::time::Duration;
    ///
    /// match DistLock::new(&client, "orders:42").try_lock_for(Duration::from_secs(2)) {
    ///     Ok(guard) => guard.unlock()?,
    ///     Err(e) if e.is_taken() => println!("409: somebody else has it"),
    ///     Err(e) if e.is_transient() => println!("503: Redis cannot be asked now"),
    ///     Err(e) => return Err(e),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_lock_for(&self, timeout: Duration) -> Result<DistLockGuard> {
        let deadline = Moment::now().after(timeout);
        self.guard(|asker| asker.wait(Some(deadline)))
    }

    /// Acquires the lock, blocking until `deadline` at most.
    ///
    /// As [`try_lock_for`](DistLock::try_lock_for), for one deadline over several locks.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](DistLock::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_secs(2);
    /// let from = DistLock::new(&client, "accounts:1").try_lock_until(deadline)?;
    /// let to = DistLock::new(&client, "accounts:2").try_lock_until(deadline)?;
    /// # drop((from, to));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_lock_until(&self, deadline: Instant) -> Result<DistLockGuard> {
        self.try_lock_for(deadline.saturating_duration_since(Instant::now()))
    }

    /// The key, as it was given. Does not block.
    ///
    /// ```
    /// use distlock::{DistLock, LockClient};
    ///
    /// let lock = DistLock::new(&LockClient::open("redis://127.0.0.1/")?, "orders:42");
    /// assert_eq!(lock.key(), "orders:42");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.local.key.text
    }

    fn guard(&self, acquire: impl FnOnce(Asker<'_>) -> Result<Won, Refusal>) -> Result<DistLockGuard> {
        self.check()?;
        let start = log_enabled!(Level::Debug).then(Moment::now);
        let guard = match acquire(self.asker()) {
            Ok(won) => self.guarding(won),
            Err(refusal) => return Err(self.about().refused(refusal)),
        };
        // A logger that panics meets a guard, which releases.
        if let Some(start) = start {
            let waited = start.until(Moment::now());
            debug!("lock {:?} acquired after {waited:?}, fence {}", self.key(), guard.fence());
        }
        Ok(guard)
    }

    fn guarding(&self, won: Won) -> DistLockGuard {
        DistLockGuard::new(Arc::clone(&self.0.client.keeper), Arc::clone(&self.0.local), won)
    }

    /// What no call may be made with.
    fn check(&self) -> Result<()> {
        if self.keeper().is_inherited() {
            return Err(self.about().inherited());
        }
        check_key(self.key())
    }

    fn asker(&self) -> Asker<'_> {
        let Inner { client, local, gate, options } = &*self.0;
        Asker { keeper: &client.keeper, local, gate, shape: &options.shape, manner: &options.manner }
    }

    fn about(&self) -> About<'_> {
        About { key: &self.0.local.key.text, client: &self.keeper().name }
    }

    fn keeper(&self) -> &crate::keeping::Keeper {
        &self.0.client.keeper
    }

    fn io(&self) -> Duration {
        self.keeper().io(&self.0.options.shape.terms)
    }
}

/// Some lock's bookkeeping cannot be locked.
pub(crate) fn check_key(key: &str) -> Result<()> {
    match Key::reserved(key) {
        Some(prefix) => {
            let text =
                format!("key {key:?} begins with {prefix:?}, which is some lock's bookkeeping: name it otherwise");
            Err(Error::invalid(text))
        }
        None => Ok(()),
    }
}

// As for the client.
impl UnwindSafe for DistLock {}
impl RefUnwindSafe for DistLock {}

impl fmt::Debug for DistLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistLock")
            .field("key", &self.key())
            .field("client", &self.keeper().name)
            .finish_non_exhaustive()
    }
}
