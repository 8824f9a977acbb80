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
use crate::keeping::{Ended, Held, Keeper, LostReason, lease, longest_ghost};
use crate::nodes::{Performed, Verdict};
use crate::options::LONGEST_TTL;
use crate::token;
use crate::waiting::{Left, LocalKey, Turn, Won};

/// A held lock. Dropping it releases; [`unlock`](DistLockGuard::unlock) releases and says whether the
/// section was covered.
///
/// It is owned, not borrowed from the lock, and may be moved to another thread, kept in a struct, and
/// dropped anywhere, also while unwinding: a panic releases the lock, there is no poisoning.
///
/// **Drop** releases like `unlock`, for at most one [`io_timeout`](crate::ClientOptions::io_timeout).
/// What could not be released by then is released in the background until its lease is over. That the
/// lock was lost, Drop can only log.
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
    local: Arc<LocalKey>,
    pub(super) held: Arc<Held>,
    turn: Option<Turn<Left>>,
    /// Released, or given away: Drop has nothing to do.
    ended: bool,
}

/// For the server's clock, which is estimated.
const CLOCK_SLACK: Duration = Duration::from_millis(50);

impl DistLockGuard {
    pub(super) fn new(keeper: Arc<Keeper>, local: Arc<LocalKey>, won: Won) -> DistLockGuard {
        DistLockGuard { keeper, local, held: won.held, turn: won.turn, ended: false }
    }

    /// A number that only grows for this key, and that no other guard has: hand it to what you write
    /// to, and let that refuse a lower number than the highest it has seen. It is below 2^53.
    ///
    /// In SQL: `UPDATE … SET v = $1, fence = $2 WHERE id = $3 AND fence <= $2`; no row changed means
    /// refused.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.held.fence
    }

    /// The key, as it was given.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.held.key.text
    }

    /// Is the lock held still, as far as this process can know? By the local clock and by what renewals
    /// were told; no I/O, does not block. Once false it stays false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.held.is_valid() && !self.keeper.is_inherited()
    }

    /// How long the lease is good if it is not renewed again; zero when it is lost. No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.keeper.is_inherited() { Duration::ZERO } else { Moment::now().until(self.held.valid()) }
    }

    /// Blocks until the lock is lost, or for `timeout`; `true` means lost. For work that cannot look at
    /// [`is_valid`](DistLockGuard::is_valid) by itself: a child process, a long statement. No I/O.
    #[must_use]
    pub fn wait_lost_for(&self, timeout: Duration) -> bool {
        self.keeper.is_inherited() || self.held.wait_lost(Moment::now().after(timeout))
    }

    /// Prolongs the lease so that it is good for at least `at_least` from now; never shortens it. With
    /// `Duration::ZERO` it only asks whether the lock is held still. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): it is gone, and is not brought back.
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption): longer than a year, or than
    /// [`Renew::AtMost`](crate::Renew::AtMost) allows. Transient kinds: the lease is what it was, and
    /// renewal goes on.
    pub fn extend(&self, at_least: Duration) -> Result<()> {
        self.check()?;
        let asked = lease::ttl_for(at_least);
        self.check_length(at_least, asked)?;
        self.renew(asked, "extend")
    }

    /// Releases the lock and says whether the section was covered: `Ok` means that the lock was held up
    /// to here. That is also so when Redis could not be reached and the lease was good when this was
    /// called: the release then goes on in the background. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): the section was not covered to its end; what was done in it
    /// must be looked at or undone. No other kind, but for a guard that a forked child inherited
    /// ([`InvalidOption`](crate::ErrorKind::InvalidOption)).
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

    /// The secret that proves the hold, and the value of the key in Redis: for logs and observers.
    /// Giving a hold away is [`into_token`](DistLockGuard::into_token); resuming one whose guard still
    /// lives loses that guard at its next renewal.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.held.token
    }

    /// Gives the hold away: the lease gets the full ttl once more, and then is neither renewed nor
    /// released here. Whoever has the token calls [`resume`](crate::DistLock::resume) within that ttl.
    ///
    /// Blocks for at most one [`io_timeout`](crate::ClientOptions::io_timeout), and once more where an
    /// attempt of the acquisition had no answer and must not be executed later.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): there is nothing to give away. Transient kinds: Redis could
    /// not be asked; the lock is released.
    pub fn into_token(mut self) -> Result<String> {
        self.check()?;
        // An attempt that is executed after this would meet a hold that is not ours to repair.
        if let Some(not_after) = self.held.ghost {
            let last = self.held.start().after(longest_ghost(self.held.io));
            let passed = self.keeper.nodes.until(not_after) + CLOCK_SLACK;
            std::thread::sleep(passed.min(Moment::now().until(last)));
        }
        let ttl = self.held.terms.ttl.min(self.held.longest(Moment::now()));
        self.renew(ttl, "give away")?;
        self.held.close();
        self.keeper.watchdog.forget(&self.held);
        self.keeper.notifier.forget(&self.held);
        if let Some(enrolled) = &self.held.enrolled {
            self.local.listener.give_away(Arc::clone(enrolled), self.held.valid());
        }
        self.ended = true;
        Ok(self.held.token.clone())
    }

    fn renew(&self, ttl: Duration, doing: &str) -> Result<()> {
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
