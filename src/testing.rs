//! A [`LockClient`] without Redis, for the unit tests of what uses locks. Feature `testing`.
//!
//! [`client()`] makes one, and a [`FakeRedis`] to play with: the code under test takes a `LockClient` as
//! ever and needs no trait and no type parameter for it. **It is no lock between processes**: what is
//! held stands in the memory of this one, and errors and logs call the deployment `"fake"`.
//!
//! | what your code has to cope with | in a test |
//! |---|---|
//! | *taken*: somebody else has the lock | hold it, with another lock of the same client, or of [`FakeRedis::client`] as another process |
//! | *down*: Redis does not answer | [`FakeRedis::set_down`] |
//! | *lost*: the lease ends in the middle of the work | [`FakeRedis::expire`] |
//!
//! All else is as on a server: leases end by the clock and are renewed, fences grow, a token can be
//! resumed, waiters of another client poll. (Only a [`TimestampLock`](crate::TimestampLock) and guarded writes need a
//! Redis, and say so.) A call on the fake does no I/O and is answered at once, so
//! that `io_timeout` has no meaning here (what could not be released while it was down is tried again
//! with pauses of at most 50 ms). Fakes share nothing: each test makes its own, and tests run side by side.
//!
//! In `Cargo.toml`, beside the ordinary dependency:
//!
//! ```toml
//! [dev-dependencies]
//! distlock = { version = "0.1", features = ["testing"] }
//! ```
//!
//! # A unit test
//!
//! The code under test answers 409 if the order is being paid already, 503 if that cannot be asked now,
//! and undoes a payment that the lock did not cover to its end:
//!
//! ```
//! use std::time::Duration;
//!
//! use distlock::{DistLock, LockClient};
//!
//! trait Bank {
//!     fn charge(&mut self, order: u32);
//!     fn refund(&mut self, order: u32);
//! }
//!
//! fn pay(redis: &LockClient, bank: &mut dyn Bank, order: u32) -> u16 {
//!     let lock = DistLock::new(redis, format!("orders:{order}"));
//!     let guard = match lock.try_lock_for(Duration::from_millis(20)) {
//!         Ok(guard) => guard,
//!         Err(e) if e.is_taken() => return 409,
//!         Err(e) if e.is_transient() => return 503,
//!         Err(_) => return 500,
//!     };
//!     bank.charge(order);
//!     if guard.unlock().is_err() {
//!         bank.refund(order);
//!         return 500;
//!     }
//!     200
//! }
//!
//! // From here on it is test code.
//! use distlock::testing::{self, FakeRedis};
//!
//! /// A bank that is so slow that the lock of the order can be lost meanwhile.
//! #[derive(Default)]
//! struct Slow {
//!     loses: Option<FakeRedis>,
//!     charged: i32,
//! }
//!
//! impl Bank for Slow {
//!     fn charge(&mut self, order: u32) {
//!         self.charged += 1;
//!         if let Some(fake) = &self.loses {
//!             fake.expire(&format!("orders:{order}"));
//!         }
//!     }
//!
//!     fn refund(&mut self, _: u32) {
//!         self.charged -= 1;
//!     }
//! }
//!
//! # fn main() -> distlock::Result<()> {
//! let (redis, fake) = testing::client();
//! let mut bank = Slow::default();
//!
//! // Free.
//! assert_eq!((pay(&redis, &mut bank, 42), bank.charged), (200, 1));
//!
//! // Taken.
//! let other = DistLock::new(&redis, "orders:42").lock()?;
//! assert_eq!((pay(&redis, &mut bank, 42), bank.charged), (409, 1));
//! other.unlock()?;
//!
//! // Down, and up again.
//! fake.set_down(true);
//! assert_eq!((pay(&redis, &mut bank, 42), bank.charged), (503, 1));
//! fake.set_down(false);
//! assert_eq!((pay(&redis, &mut bank, 42), bank.charged), (200, 2));
//!
//! // Lost in the middle: charged, and undone.
//! bank.loses = Some(fake);
//! assert_eq!((pay(&redis, &mut bank, 42), bank.charged), (500, 2));
//! # Ok(())
//! # }
//! ```

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use crate::client::LockClient;
use crate::nodes::{Fake, Nodes};

/// What the deployment is called in errors, logs and thread names.
const NAME: &str = "fake";

/// Nothing takes this long; a release that found the fake down is tried again after this at the latest.
const IO_TIMEOUT: Duration = Duration::from_millis(50);

/// A client without Redis, and what it talks to. Does not block.
///
/// ```
/// use distlock::{DistLock, testing};
///
/// # fn main() -> distlock::Result<()> {
/// let (client, _fake) = testing::client();
/// let lock = DistLock::new(&client, "orders:42");
/// let guard = lock.lock()?;
/// assert!(lock.try_lock().unwrap_err().is_taken());
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn client() -> (LockClient, FakeRedis) {
    let fake = FakeRedis(Arc::default());
    (fake.client(), fake)
}

/// What the client of a test talks to instead of Redis: a table in memory, which its clones share. It is
/// no lock between processes.
///
/// It may go before its clients, and they before it.
#[derive(Clone)]
pub struct FakeRedis(Arc<Fake>);

impl FakeRedis {
    /// Another client of the same fake, which stands for another process: its locks exclude those of the
    /// first, and nothing else is shared. Its threads wait by polling, as those of another process do.
    /// (Clones of one client are one process: its threads queue.) Does not block.
    ///
    /// ```
    /// use distlock::{DistLock, testing};
    ///
    /// # fn main() -> distlock::Result<()> {
    /// let (here, fake) = testing::client();
    /// let there = fake.client();
    /// let guard = DistLock::new(&there, "orders:42").lock()?;
    /// assert!(DistLock::new(&here, "orders:42").try_lock().unwrap_err().is_taken());
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn client(&self) -> LockClient {
        LockClient::of(NAME, Arc::clone(&self.0) as Arc<dyn Nodes>, IO_TIMEOUT)
    }

    /// From now on every call fails at once as [`Unreachable`](crate::ErrorKind::Unreachable), as with a
    /// Redis that is not there; `set_down(false)` brings it back, with all that it had. Does not block.
    ///
    /// What is held stays valid until its lease ends by the clock, since it cannot be renewed: with the
    /// default ttl of 30 s that is long for a test, which [`expire`](FakeRedis::expire)s it instead.
    /// A wait rides the outage out: `try_lock_for` to its end, and `lock` for
    /// [`unreachable_after`](crate::LockOptions::unreachable_after), 30 s by default.
    ///
    /// ```
    /// use distlock::{DistLock, ErrorKind, testing};
    ///
    /// # fn main() -> distlock::Result<()> {
    /// let (client, fake) = testing::client();
    /// let lock = DistLock::new(&client, "orders:42");
    /// fake.set_down(true);
    /// assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    /// fake.set_down(false);
    /// lock.try_lock()?.unlock()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_down(&self, down: bool) {
        self.0.set_down(down);
    }

    /// Ends the lease of a key now, as if its time were over; nothing if nobody holds it. Works while
    /// the fake is down, too.
    ///
    /// When this returns the guard is lost, whichever client it belongs to:
    /// [`is_valid`](crate::DistLockGuard::is_valid) is false, `wait_lost_for` wakes, `unlock` and
    /// `extend` say [`Lost`](crate::ErrorKind::Lost), and the next one may have the lock. An
    /// [`on_lost`](crate::LockOptions::on_lost) is called from its own thread soon after, with
    /// [`LostReason::Expired`](crate::LostReason::Expired). Does not block.
    ///
    /// ```
    /// use distlock::{DistLock, ErrorKind, testing};
    ///
    /// # fn main() -> distlock::Result<()> {
    /// let (client, fake) = testing::client();
    /// let guard = DistLock::new(&client, "orders:42").lock()?;
    /// fake.expire("orders:42");
    /// assert!(!guard.is_valid());
    /// assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire(&self, key: &str) {
        self.0.expire(key);
    }
}

// As for the client.
impl UnwindSafe for FakeRedis {}
impl RefUnwindSafe for FakeRedis {}

impl fmt::Debug for FakeRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeRedis")
            .field("down", &self.0.is_down())
            .field("held", &self.0.keys())
            .finish_non_exhaustive()
    }
}
