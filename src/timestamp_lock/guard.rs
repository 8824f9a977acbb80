//! The guard of a timestamp lock: a stamp in the hands of its user.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use log::warn;

use crate::clock::Moment;
use crate::error::{About, Result};
use crate::keeping::{Keeper, LostReason};
use crate::nodes::{Key, Stamping, Unstamp};
use crate::server::{Class, Failure};

/// A held [`TimestampLock`](crate::TimestampLock). Dropping it releases;
/// [`unlock`](TimestampLockGuard::unlock) releases and says whether the section was covered.
///
/// **It is not renewed**: its work must end within the ttl, and [`is_valid`](TimestampLockGuard::is_valid)
/// tells whether it has. It has **no fence**. It is owned, may be moved to another thread, and a panic
/// releases.
///
/// **Drop** releases like `unlock`, for at most one [`io_timeout`](crate::ClientOptions::io_timeout). What
/// could not be released by then ends with its stamp.
#[must_use = "the lock is released at once if its guard is not bound to a name, as in `let guard = …` (`let _ = …` binds none)"]
pub struct TimestampLockGuard {
    keeper: Arc<Keeper>,
    key: Arc<Key>,
    how: Stamping,
    stamp: u64,
    valid: Moment,
    io: Duration,
    /// Released, or given up: Drop has nothing to do.
    ended: bool,
}

/// How a release ended.
enum Ended {
    Covered,
    /// Redis could not be asked; the hold was good by the clock.
    Later(Failure),
    Lost(LostReason),
}

impl TimestampLockGuard {
    pub(super) fn new(
        keeper: &Arc<Keeper>,
        key: &Arc<Key>,
        how: Stamping,
        stamp: u64,
        valid: Moment,
        io: Duration,
    ) -> TimestampLockGuard {
        TimestampLockGuard { keeper: Arc::clone(keeper), key: Arc::clone(key), how, stamp, valid, io, ended: false }
    }

    /// The key, as it was given. Does not block.
    ///
    /// ```no_run
    /// # use distlock::TimestampLock;
    /// # fn work(lock: &TimestampLock) -> distlock::Result<()> {
    /// let guard = lock.lock()?;
    /// println!("{} is mine", guard.key());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key.text
    }

    /// The value of the key in Redis: the end of the hold, in the lock's [unit](crate::StampUnit) since 1970.
    /// Does not block.
    ///
    /// ```no_run
    /// # use distlock::TimestampLock;
    /// # fn work(lock: &TimestampLock) -> distlock::Result<()> {
    /// let guard = lock.lock()?;
    /// println!("it ends at {} ms since 1970", guard.stamp());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Is the lock held still, as far as the local clock can tell? No I/O, does not block.
    ///
    /// Counted from before the stamp was written, less 1 % of the ttl and 2 ms. Once false it stays false.
    ///
    /// ```no_run
    /// # use distlock::TimestampLock;
    /// # fn work(lock: &TimestampLock) -> distlock::Result<()> {
    /// let guard = lock.lock()?;
    /// for row in 0..1_000_000 {
    ///     if !guard.is_valid() {
    ///         break;
    ///     }
    ///     println!("{row}"); // one step of the work
    /// }
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the hold is good; zero when it is over. No I/O, does not block.
    ///
    /// ```no_run
    /// # use distlock::TimestampLock;
    /// # fn work(lock: &TimestampLock) -> distlock::Result<()> {
    /// let guard = lock.lock()?;
    /// println!("{:?} are left for the work", guard.remaining());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.keeper.is_inherited() { Duration::ZERO } else { Moment::now().until(self.valid) }
    }

    /// Releases the lock and says whether the section was covered.
    ///
    /// `Ok` means that the lock was held up to here; also when Redis could not be reached and the hold was
    /// good when this was called: then the lock stays taken until its stamp is over. A stamp that is over is
    /// not touched. Blocks for at most one [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): the section was not covered to its end, or it cannot be told: the
    /// stamp is over, gone, or another's. (A client that lost a race may overwrite a stamp: see the
    /// [flaws](crate::TimestampLock#the-flaws-of-the-protocol).) No other kind, but for a guard that a forked
    /// child inherited ([`InvalidOption`](crate::ErrorKind::InvalidOption)).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::TimestampLock;
    /// # fn work(lock: &TimestampLock) -> distlock::Result<()> {
    /// let guard = lock.lock()?;
    /// // … the work …
    /// guard.unlock()?;
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
                self.say_later(&failure);
                Ok(())
            }
            Ended::Lost(loss) => Err(self.about().lost(loss)),
        }
    }

    /// It was over before anybody had it.
    pub(super) fn give_up(mut self) {
        self.end();
    }

    fn end(&mut self) -> Ended {
        self.ended = true;
        let covered = self.is_valid();
        let nodes = &self.keeper.nodes;
        let found = if nodes.is_down() {
            // Known already: a hundred guards must not wait out a hundred timeouts.
            Err(Failure::new(Class::Unreachable))
        } else {
            nodes.unstamp(&self.key, &self.how, self.stamp, self.io)
        };
        match found {
            Ok(Unstamp::Freed) => Ended::Covered,
            Ok(Unstamp::Over) => Ended::Lost(LostReason::Expired),
            // Redis removes what is over.
            Ok(Unstamp::Gone) => Ended::Lost(if covered { LostReason::Deleted } else { LostReason::Expired }),
            Ok(Unstamp::Others) => Ended::Lost(LostReason::Taken),
            Err(failure) if covered => Ended::Later(failure),
            Err(_) => Ended::Lost(LostReason::Expired),
        }
    }

    fn say_later(&self, failure: &Failure) {
        warn!("{} could not be released, it stays taken until its stamp is over: {failure}", self.about());
    }

    fn about(&self) -> About<'_> {
        About { key: &self.key.text, client: &self.keeper.name }
    }
}

impl Drop for TimestampLockGuard {
    fn drop(&mut self) {
        if self.ended || self.keeper.is_inherited() {
            return;
        }
        match self.end() {
            Ended::Covered => {}
            Ended::Later(failure) => self.say_later(&failure),
            Ended::Lost(loss) => warn!("{} was lost before it was released: {}", self.about(), loss.text()),
        }
    }
}

// As for the client.
impl UnwindSafe for TimestampLockGuard {}
impl RefUnwindSafe for TimestampLockGuard {}

impl fmt::Debug for TimestampLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimestampLockGuard")
            .field("key", &self.key())
            .field("client", &self.keeper.name)
            .field("stamp", &self.stamp)
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
