//! Giving a hold away: the token that proves it, and a guard that lets go without releasing.

use std::{sync::Arc, time::Duration};

use super::DistLockGuard;
use crate::clock::Moment;
use crate::error::Result;
use crate::keeping::longest_ghost;

/// For the server's clock, which is estimated.
const CLOCK_SLACK: Duration = Duration::from_millis(50);

impl DistLockGuard {
    /// The secret that proves the hold, and the value of the key in Redis. Does not block.
    ///
    /// For observers. Giving a hold away is [`into_token`](DistLockGuard::into_token); resuming one whose
    /// guard still lives loses that guard at its next renewal.
    ///
    /// ```no_run
    /// # use distlock::{DistLock, DistLockGuard};
    /// # fn look(lock: &DistLock, guard: &DistLockGuard) -> distlock::Result<()> {
    /// let mine = lock.holder()?.is_some_and(|holder| holder.token == guard.token());
    /// # let _ = mine;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn token(&self) -> &str {
        &self.held.token
    }

    /// Gives the hold away, to another process or client.
    ///
    /// The lease gets the full ttl once more, and then is neither renewed nor released here. Whoever has
    /// the token calls [`resume`](crate::DistLock::resume) within that ttl.
    ///
    /// Blocks for at most one [`io_timeout`](crate::ClientOptions::io_timeout), and once more where an
    /// attempt of the acquisition had no answer and must not be executed later.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): there is nothing to give away. Transient kinds: Redis could
    /// not be asked; the lock is released.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// let lock = DistLock::new(&client, "import");
    /// let token = lock.lock()?.into_token()?;
    /// let child = std::process::Command::new("importer").env("IMPORT_TOKEN", &token).spawn();
    /// if child.is_err() {
    ///     lock.resume(&token)?.unlock()?; // nobody took it
    /// }
    /// # Ok(())
    /// # }
    /// ```
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
}
