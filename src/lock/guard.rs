//! The guard: a hold in the hands of its user.

use std::{
    fmt, mem,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use log::{debug, warn};

use crate::clock::Moment;
use crate::error::{About, Error, Result};
use crate::keeping::{Ended, Held, Keeper, LostReason, lease};
use crate::nodes::{Performed, Verdict};
use crate::options::LONGEST_TTL;
use crate::token;
use crate::waiting::{Left, LocalKey, Turn, Won};

/// A held lock. Dropping it releases; [`unlock`](DistLockGuard::unlock) releases and says whether the
/// section was covered.
///
/// **[A lease can be lost](crate::guide::leases)** while its guard lives:
/// [`is_valid`](DistLockGuard::is_valid) and [`wait_lost_for`](DistLockGuard::wait_lost_for) tell during the
/// work, `unlock` at its end, and the [`fence`](DistLockGuard::fence) lets the resource refuse what comes too
/// late.
///
/// It is owned, not borrowed from the lock, and may be moved to another thread, kept in a struct, and
/// dropped anywhere, also while unwinding: a panic releases the lock, there is no poisoning.
///
/// **Drop** releases like `unlock`, for at most one [`io_timeout`](crate::ClientOptions::io_timeout).
/// What could not be released by then is released in the background until its lease is over. That the
/// lock was lost, Drop can only log. When the client knows already that Redis is down, Drop does not
/// wait for it.
///
/// ```no_run
/// use distlock::{DistLock, LockClient};
///
/// # fn main() -> distlock::Result<()> {
/// let client = LockClient::open("redis://127.0.0.1/")?;
/// let guard = DistLock::new(&client, "orders:42").lock()?;
/// // … the work …
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
///
/// **Bind it to a name.** A guard that is not is gone at the end of its statement, and the lock with it.
/// rustc warns of `lock.lock()?;`, and, where the lint is switched on, of `let _ =`, which binds nothing:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # fn f(lock: distlock::DistLock) -> distlock::Result<()> {
/// lock.lock()?; // released already
/// # Ok(())
/// # }
/// ```
/// ```compile_fail
/// #![deny(let_underscore_drop)]
/// # fn f(lock: distlock::DistLock) -> distlock::Result<()> {
/// let _ = lock.lock()?; // released already
/// # Ok(())
/// # }
/// ```
/// ```no_run
/// #![deny(unused_must_use, let_underscore_drop)]
/// # fn f(lock: distlock::DistLock) -> distlock::Result<()> {
/// let _guard = lock.lock()?; // held to the end of the block
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released at once if its guard is not bound to a name, as in `let guard = …` (`let _ = …` binds none)"]
pub struct DistLockGuard {
    pub(super) keeper: Arc<Keeper>,
    pub(super) local: Arc<LocalKey>,
    pub(super) held: Arc<Held>,
    turn: Option<Turn<Left>>,
    /// Released, or given away: Drop has nothing to do.
    pub(super) ended: bool,
}

impl DistLockGuard {
    pub(super) fn new(keeper: Arc<Keeper>, local: Arc<LocalKey>, won: Won) -> DistLockGuard {
        DistLockGuard { keeper, local, held: won.held, turn: won.turn, ended: false }
    }

    /// Returns a number that only grows for this key, and that no other guard has.
    ///
    /// Hand it to what you write to, and let that refuse a number lower than the highest it has seen:
    /// [why](crate::guide::leases#what-a-look-cannot-do). It is below 2^53. No I/O, does not block.
    ///
    /// In SQL: `UPDATE … SET v = $1, fence = $2 WHERE id = $3 AND fence <= $2`; no row changed means
    /// refused. Drivers that want a signed column:
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// let guard = DistLock::new(&client, "orders:42").lock()?;
    /// let fence = i64::try_from(guard.fence()).expect("it is below 2^53");
    /// # let _ = fence;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.held.fence
    }

    /// The key, as it was given. Does not block.
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// let guard = DistLock::new(&LockClient::open("redis://127.0.0.1/")?, "orders:42").lock()?;
    /// println!("{} with fence {}", guard.key(), guard.fence());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        &self.held.key.text
    }

    /// Is the lock held still, as far as this process can know?
    ///
    /// By the local clock and by what renewals were told; no I/O, does not block. Once false it stays false.
    /// A `true` is no promise for what comes after it: [a lease can be lost](crate::guide::leases).
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// let guard = DistLock::new(&client, "import").lock()?;
    /// for line in 0..1_000_000 {
    ///     if !guard.is_valid() {
    ///         break;
    ///     }
    ///     println!("{line}"); // one step of the work
    /// }
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.held.is_valid() && !self.keeper.is_inherited()
    }

    /// How long the lease is good if it is not renewed again; zero when it is lost. No I/O, does not block.
    ///
    /// ```no_run
    /// # fn step(guard: &distlock::DistLockGuard) {
    /// println!("{} is good for {:?} more", guard.key(), guard.remaining());
    /// # }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.keeper.is_inherited() { Duration::ZERO } else { Moment::now().until(self.held.valid()) }
    }

    /// Blocks until the lock is lost, or for `timeout`; `true` means lost.
    ///
    /// For work that cannot look at [`is_valid`](DistLockGuard::is_valid) by itself: a child process, a
    /// long statement. No I/O.
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// use std::time::Duration;
    ///
    /// let guard = DistLock::new(&client, "leader").lock()?;
    /// let mut job = std::process::Command::new("job").spawn().expect("a job");
    /// while job.try_wait().expect("a child").is_none() {
    ///     if guard.wait_lost_for(Duration::from_millis(100)) {
    ///         job.kill().expect("it can be killed");
    ///     }
    /// }
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn wait_lost_for(&self, timeout: Duration) -> bool {
        self.keeper.is_inherited() || self.held.wait_lost(Moment::now().after(timeout))
    }

    /// Prolongs the lease so that it is good for at least `at_least` from now; never shortens it.
    ///
    /// For [`Renew::Never`](crate::Renew::Never), or before a pause. With `Duration::ZERO` it only asks
    /// whether the lock is held still. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): it is gone, and is not brought back.
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption): longer than a year, or than
    /// [`Renew::AtMost`](crate::Renew::AtMost) allows. Transient kinds: the lease is what it was, and
    /// renewal goes on.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// use std::time::Duration;
    ///
    /// let guard = DistLock::new(&client, "import").lock()?;
    /// guard.extend(Duration::from_secs(120))?; // before a step in which this process stands still
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn extend(&self, at_least: Duration) -> Result<()> {
        self.check()?;
        let asked = lease::ttl_for(at_least);
        self.check_length(at_least, asked)?;
        self.renew(asked, "extend")
    }

    /// Releases the lock and says whether the section was covered.
    ///
    /// `Ok` means that the lock was held up to here. That is also so when Redis could not be reached and
    /// the lease was good when this was called: the release then goes on in the background. Blocks for at
    /// most one [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): the section was not covered to its end; what was done in it
    /// must be looked at or undone. No other kind, but for a guard that a forked child inherited
    /// ([`InvalidOption`](crate::ErrorKind::InvalidOption)).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// use distlock::ErrorKind;
    ///
    /// let guard = DistLock::new(&client, "orders:42").lock()?;
    /// // … the work …
    /// if let Err(e) = guard.unlock() {
    ///     assert_eq!(e.kind(), ErrorKind::Lost);
    ///     println!("not covered to its end, look at what was done: {e}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn unlock(mut self) -> Result<()> {
        if self.keeper.is_inherited() {
            return Err(self.about().inherited());
        }
        match self.end() {
            Ended::Covered => Ok(()),
            Ended::Later(failure) => {
                warn!("{} could not be released, which goes on in the background: {failure}", self.about());
                Ok(())
            }
            Ended::Lost(loss) => Err(self.about().lost(loss)),
        }
    }

    pub(super) fn renew(&self, ttl: Duration, doing: &str) -> Result<()> {
        let sent = Moment::now();
        let Performed { verdict, .. } = self.keeper.nodes.perform(&self.held.renewal(ttl), self.held.io);
        let loss = match verdict {
            Ok(Verdict::Ours) if self.held.renewed(sent, ttl) => return Ok(()),
            Ok(Verdict::Ours) => None,
            Ok(Verdict::Gone) => Some(LostReason::Deleted),
            Ok(_) => Some(LostReason::Taken),
            Err(failure) => return Err(self.about().failed(doing, failure)),
        };
        Err(self.found_lost(loss))
    }

    /// Redis says that the hold is over, or (`None`) the clock does.
    pub(super) fn found_lost(&self, loss: Option<LostReason>) -> Error {
        self.held.lose(loss);
        self.about().lost(self.held.loss().unwrap_or(LostReason::Expired))
    }

    /// A lost hold does not come back, and a forked child has none.
    pub(super) fn check(&self) -> Result<()> {
        if self.keeper.is_inherited() {
            return Err(self.about().inherited());
        }
        match self.held.loss() {
            Some(loss) => Err(self.about().lost(loss)),
            None => Ok(()),
        }
    }

    fn check_length(&self, at_least: Duration, ttl: Duration) -> Result<()> {
        let left = self.held.longest(Moment::now());
        let longest = if at_least > LONGEST_TTL {
            LONGEST_TTL
        } else if ttl > left && !at_least.is_zero() {
            left
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!("{} cannot be extended by {at_least:?}: {longest:?} are possible", self.about())))
    }

    fn end(&mut self) -> Ended {
        self.ended = true;
        if self.pass_on() {
            return Ended::Covered;
        }
        let ended = self.keeper.release(&self.held);
        if matches!(ended, Ended::Covered) {
            self.local.news.answered();
        }
        debug!(
            "{} released after {:?}, token {}",
            self.about(),
            self.held.start().until(Moment::now()),
            token::short(self.token())
        );
        // Only now may the next thread of this process ask.
        self.turn = None;
        ended
    }

    /// Hands the lease to the next thread that waits here, without asking Redis; `false`: to nobody.
    fn pass_on(&mut self) -> bool {
        let worth_it = |turn: &mut Turn<Left>| turn.has_successor() && self.held.may_be_passed();
        let Some(turn) = self.turn.take_if(worth_it) else { return false };
        if !self.keeper.let_go(&self.held) {
            self.turn = Some(turn);
            return false;
        }
        match turn.pass(Left::Lease(Arc::clone(&self.held)), Arc::clone(&self.held) as _) {
            Ok(()) => {
                self.local.news.touch();
                debug!("{} passed on after {:?}", self.about(), self.held.start().until(Moment::now()));
                true
            }
            Err((turn, _)) => {
                self.turn = Some(turn);
                false
            }
        }
    }

    pub(super) fn about(&self) -> About<'_> {
        About { key: &self.held.key.text, client: &self.keeper.name }
    }
}

impl Drop for DistLockGuard {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.keeper.is_inherited() {
            // A copy in a forked child: the lock is the parent's, and mutexes may be held for ever.
            mem::forget(self.turn.take());
            return;
        }
        match self.end() {
            Ended::Covered => {}
            Ended::Later(failure) => {
                warn!("{} could not be released, which goes on in the background: {failure}", self.about());
            }
            Ended::Lost(loss) => warn!("{} was lost before it was released: {}", self.about(), loss.text()),
        }
    }
}

// As for the client.
impl UnwindSafe for DistLockGuard {}
impl RefUnwindSafe for DistLockGuard {}

impl fmt::Debug for DistLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistLockGuard")
            .field("key", &self.key())
            .field("client", &self.keeper.name)
            .field("fence", &self.fence())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
