//! The lock and its guard: the public face of acquiring, keeping and releasing.

mod guard;
mod guarded;

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
use crate::token;
use crate::waiting::{Asker, Gate, Left, LocalKey, Refusal, Won};

pub use guard::DistLockGuard;

/// A mutex for one key, across the threads, processes and machines that share a Redis deployment.
///
/// It guards no data: what it protects is elsewhere, in a database or a file. Making one does no I/O
/// and is cheap enough to do for each request. Locks with the same key on the same deployment exclude
/// each other, whichever client, process or machine they are made in.
///
/// A lock is a lease: Redis keeps it for a [ttl](LockOptions::ttl), and it is renewed while the guard
/// lives. **A lease can be lost**: when Redis cannot be reached for that long, when the process is
/// stopped for that long, when somebody deletes the key. Then [`is_valid`](DistLockGuard::is_valid) is
/// false, [`unlock`](DistLockGuard::unlock) says `Lost`, and the [fence](DistLockGuard::fence) lets the
/// resource refuse what comes late.
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

/// Who holds a lock, as Redis has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The value of the key. Whoever knows it can end or take over the hold.
    pub token: String,
    /// The [label](LockOptions::label), if the holder is one of this crate's and has one.
    pub label: Option<String>,
    /// How long the key lasts if it is not renewed; `None`: for ever, which no lock of this crate does.
    pub remaining: Option<Duration>,
}

impl DistLock {
    /// A lock for `key` with the default [options](LockOptions). No I/O.
    ///
    /// Any text is a key and stands in Redis as it is. Keys that begin with `distlock:fence`,
    /// `distlock:queue` or `distlock:waiters` are the crate's own bookkeeping: locking one is refused
    /// with [`InvalidOption`](crate::ErrorKind::InvalidOption).
    pub fn new(client: &LockClient, key: impl AsRef<str>) -> DistLock {
        DistLock::make(client, key.as_ref(), Checked::default())
    }

    /// A lock for `key` with options of its own. No I/O.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if an option is out of its limits, or the key
    /// is the crate's own bookkeeping.
    pub fn with_options(client: &LockClient, key: impl AsRef<str>, options: &LockOptions) -> Result<DistLock> {
        let options = options.check()?;
        check_key(key.as_ref())?;
        Ok(DistLock::make(client, key.as_ref(), options))
    }

    fn make(client: &LockClient, key: &str, options: Checked) -> DistLock {
        let local = client.locals.key(key);
        let gate = local.gate(&options.shape);
        DistLock(Arc::new(Inner { client: client.clone(), local, gate, options }))
    }

    /// Acquires the lock, blocking while somebody else holds it: for ever, like a `Mutex`. It fails
    /// when Redis has given no useful answer for
    /// [`unreachable_after`](LockOptions::unreachable_after) (30 s), counted from the later of the
    /// call's start and the last useful answer for this key that any thread of this client got.
    ///
    /// Threads of one client get the lock in the order in which they asked, and so do processes that
    /// [wait in turn](crate::Wait::InTurn); a process may pass it among its threads for
    /// [a moment](LockOptions::local_passes) first. Nobody holds a pooled connection while waiting. The
    /// first failure of a wait is logged. Locking a key that the same thread holds waits for ever.
    ///
    /// # Errors
    ///
    /// [`Unreachable`](crate::ErrorKind::Unreachable), [`Exhausted`](crate::ErrorKind::Exhausted) and
    /// [`Unavailable`](crate::ErrorKind::Unavailable) after that time;
    /// [`Denied`](crate::ErrorKind::Denied), [`WrongType`](crate::ErrorKind::WrongType),
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption), [`Protocol`](crate::ErrorKind::Protocol) at
    /// once; [`Interrupted`](crate::ErrorKind::Interrupted).
    pub fn lock(&self) -> Result<DistLockGuard> {
        self.guard(|asker| asker.wait(None))
    }

    /// Acquires the lock if it is free now. One attempt (one more where a pooled connection turns out
    /// to be closed); none while this client holds the key. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout); a refused port takes milliseconds.
    ///
    /// # Errors
    ///
    /// [`Taken`](crate::ErrorKind::Taken); every other kind but `Interrupted` and `Lost`, at once.
    pub fn try_lock(&self) -> Result<DistLockGuard> {
        self.guard(|asker| asker.once())
    }

    /// Acquires the lock, blocking for at most `timeout`, and one
    /// [`io_timeout`](crate::ClientOptions::io_timeout) where a call is under way at its end.
    /// `Duration::ZERO` is one attempt. Transient errors are ridden out until then.
    ///
    /// # Errors
    ///
    /// At the deadline what the last attempt for the key said: [`Taken`](crate::ErrorKind::Taken), or
    /// its transient error; other kinds as for [`lock`](DistLock::lock), at once.
    pub fn try_lock_for(&self, timeout: Duration) -> Result<DistLockGuard> {
        let deadline = Moment::now().after(timeout);
        self.guard(|asker| asker.wait(Some(deadline)))
    }

    /// As [`try_lock_for`](DistLock::try_lock_for), until a point in time: for one deadline over
    /// several locks.
    ///
    /// # Errors
    ///
    /// As [`try_lock_for`](DistLock::try_lock_for).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<DistLockGuard> {
        self.try_lock_for(deadline.saturating_duration_since(Instant::now()))
    }

    /// Is it held, by whomever? The answer may be old when it arrives: for observers, not for decisions.
    /// Blocks for at most one [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// Every kind but `Taken`, `Lost` and `Interrupted`.
    pub fn is_locked(&self) -> Result<bool> {
        Ok(self.holder()?.is_some())
    }

    /// Who holds it, whoever that is. The answer may be old when it arrives. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// Every kind but `Taken`, `Lost` and `Interrupted`.
    pub fn holder(&self) -> Result<Option<Holder>> {
        self.check()?;
        let owner = self.keeper().nodes.owner(&self.0.local.key, self.io());
        let owner = owner.map_err(|failure| self.about().failed("look at", failure))?;
        Ok(owner.map(|owner| Holder {
            label: token::label_of(&owner.token).map(str::to_owned),
            remaining: owner.remaining,
            token: owner.token,
        }))
    }

    /// Frees the lock, whoever holds it; was it held? For operators: the holder finds out as
    /// [lost](crate::ErrorKind::Lost), and its work goes on until it looks. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// Every kind but `Taken`, `Lost` and `Interrupted`.
    pub fn force_unlock(&self) -> Result<bool> {
        self.check()?;
        let freed = self.keeper().nodes.force(&self.0.local.key, self.io());
        freed.map_err(|failure| self.about().failed("free", failure))
    }

    /// Takes over the hold that `token` proves, also another process's or client's, with a new
    /// [fence](DistLockGuard::fence) and this lock's options; the counterpart of
    /// [`into_token`](DistLockGuard::into_token). Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout), and a few more where a call had no answer and
    /// must not be executed later.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the hold is gone; every other kind but `Taken` and
    /// `Interrupted`.
    pub fn resume(&self, token: &str) -> Result<DistLockGuard> {
        self.check()?;
        match self.asker().resume(token) {
            Ok(Some(won)) => Ok(self.guarding(won)),
            Ok(None) => Err(self.about().gone()),
            Err(failure) => Err(self.about().failed("resume", failure)),
        }
    }

    /// The key, as it was given.
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

fn check_key(key: &str) -> Result<()> {
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
