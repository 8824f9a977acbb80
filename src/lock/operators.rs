//! What observers and operators ask of a lock, and how a hold is taken over. Nobody waits here.

use std::time::Duration;

use super::{DistLock, DistLockGuard};
use crate::error::Result;
use crate::token;

/// Who holds a lock, as Redis has it. From [`DistLock::holder`], which has an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The value of the key. Whoever knows it can end or take over the hold.
    pub token: String,
    /// The [label](crate::LockOptions::label), if the holder is one of this crate's and has one.
    pub label: Option<String>,
    /// How long the key lasts if it is not renewed; `None`: for ever, which no lock of this crate does.
    pub remaining: Option<Duration>,
}

impl DistLock {
    /// Asks whether it is held, by whomever.
    ///
    /// The answer may be old when it arrives: for observers, not for decisions. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// Every kind but `Taken`, `Lost` and `Interrupted`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// println!("the report is being written: {}", DistLock::new(&client, "report").is_locked()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_locked(&self) -> Result<bool> {
        Ok(self.holder()?.is_some())
    }

    /// Asks who holds it, whoever that is; `None`: nobody.
    ///
    /// The answer may be old when it arrives. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// Every kind but `Taken`, `Lost` and `Interrupted`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// if let Some(holder) = DistLock::new(&client, "report").holder()? {
    ///     println!("{:?} has it, for {:?} more", holder.label, holder.remaining);
    /// }
    /// # Ok(())
    /// # }
    /// ```
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

    /// Frees the lock, whoever holds it; was it held?
    ///
    /// For operators: the holder finds out as [lost](crate::guide::leases) at its next renewal, and its
    /// work goes on until it looks. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// Every kind but `Taken`, `Lost` and `Interrupted`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// if DistLock::new(&client, "report").force_unlock()? {
    ///     println!("it was held, and is free now");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn force_unlock(&self) -> Result<bool> {
        self.check()?;
        let freed = self.keeper().nodes.force(&self.0.local.key, self.io());
        freed.map_err(|failure| self.about().failed("free", failure))
    }

    /// Takes over the hold that `token` proves, also another process's or client's.
    ///
    /// The counterpart of [`into_token`](DistLockGuard::into_token). The guard has a new
    /// [fence](DistLockGuard::fence) and this lock's options. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout), and a few more where a call had no answer and
    /// must not be executed later.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if the hold is gone; every other kind but `Taken` and
    /// `Interrupted`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// // Started by a process that holds "import" and gave the hold away to this one.
    /// let token = std::env::var("IMPORT_TOKEN").expect("a token");
    /// let guard = DistLock::new(&client, "import").resume(&token)?;
    /// // … the work …
    /// guard.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(&self, token: &str) -> Result<DistLockGuard> {
        self.check()?;
        match self.asker().resume(token) {
            Ok(Some(won)) => Ok(self.guarding(won)),
            Ok(None) => Err(self.about().gone()),
            Err(failure) => Err(self.about().failed("resume", failure)),
        }
    }
}
