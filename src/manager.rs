//! Named deployments: a program that learns its services while it runs finds the client of each by name.
//!
//! It owns nothing but the names. Holds without a guard, which a manager also gives, are in `hold`.

mod hold;

use std::{
    collections::BTreeMap,
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;

use crate::client::LockClient;
use crate::error::{Error, Result};
use crate::lock::DistLock;
use crate::options::LockOptions;
use hold::Hold;

/// The [`LockClient`]s of several deployments, by the names of the services that they belong to.
///
/// For programs that learn their services while they run: from a configuration, from a request. Where they
/// are known when the program is written, a field or a static for each client is checked by the compiler and
/// needs no name. Clones are the same manager, and may be used from any thread.
///
/// ```no_run
/// use distlock::{LockClient, LockManager};
///
/// # fn main() -> distlock::Result<()> {
/// let services = LockManager::new();
/// services.add("orders", &LockClient::open("redis://10.0.0.7/")?)?;
/// services.add("reports", &LockClient::open("redis://10.0.0.8/")?)?;
///
/// let guard = services.mutex("orders", "orders:42")?.lock()?;
/// // … the work …
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
///
/// # Holds without a guard
///
/// Where the holder is no value in a program (it spans two requests, or is known by a number that somebody
/// else made) a hold is three calls: [`add_lock`](LockManager::add_lock),
/// [`is_held_by`](LockManager::is_held_by), [`release_lock`](LockManager::release_lock). **Nobody renews it**:
/// it ends by its ttl, and nothing tells its holder. Locks and such holds exclude each other: they are the
/// same key with the same scripts, and a release hands over to whoever waits in a [`DistLock`].
/// [`DistLock::resume`] makes a guard of one, with a fence, that is renewed.
///
/// The token is the caller's: any text without line breaks, of 1 to 256 bytes, as a rule a new uuid. Whoever
/// has it owns the hold, so take **a new one for each hold**, and do not use one in two calls at once: for Redis
/// both are the same holder, both are told that the lock is theirs, and the first release ends it for both.
#[derive(Clone)]
pub struct LockManager(Arc<Inner>);

struct Inner {
    /// Guards which services there are.
    clients: RwLock<BTreeMap<Arc<str>, LockClient>>,
    /// The process that made it. In a forked child the names may be held by a thread that is not there.
    pid: u32,
}

/// An error names so many services; it must stay a line.
const MOST_NAMED: usize = 20;

impl LockManager {
    /// Makes one that knows no service yet. Does not block.
    #[must_use]
    pub fn new() -> LockManager {
        LockManager(Arc::new(Inner { clients: RwLock::default(), pid: std::process::id() }))
    }

    /// Adds a service by name. Does not block.
    ///
    /// Any text is a name. One that is there already stays as it is, and cannot be replaced: threads that hold
    /// the old client and threads that ask for the new one would lock in two places.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if the name is there.
    ///
    /// # Examples
    ///
    /// ```
    /// # use distlock::{LockClient, LockManager};
    /// # fn main() -> distlock::Result<()> {
    /// let services = LockManager::new();
    /// services.add("orders", &LockClient::open("redis://10.0.0.7/")?)?;
    /// assert!(services.add("orders", &LockClient::open("redis://10.0.0.8/")?).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn add(&self, service: impl AsRef<str>, client: &LockClient) -> Result<()> {
        self.check()?;
        let service = service.as_ref();
        let mut clients = self.0.clients.write();
        if clients.contains_key(service) {
            return Err(Error::invalid(format!("service {service:?} is there already, and cannot be replaced")));
        }
        clients.insert(service.into(), client.clone());
        Ok(())
    }

    /// The client of a service. Does not block.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) if there is no such service; the text names those
    /// that there are.
    ///
    /// # Examples
    ///
    /// ```
    /// # use distlock::{LockClient, LockManager};
    /// # fn main() -> distlock::Result<()> {
    /// let services = LockManager::new();
    /// services.add("orders", &LockClient::open("redis://10.0.0.7/")?)?;
    /// let error = services.client("order").unwrap_err();
    /// assert_eq!(error.to_string(), r#"there is no service "order": known are "orders""#);
    /// # Ok(())
    /// # }
    /// ```
    pub fn client(&self, service: &str) -> Result<LockClient> {
        self.check()?;
        let clients = self.0.clients.read();
        clients.get(service).cloned().ok_or_else(|| unknown(service, &clients))
    }

    /// The names of all services, in order; empty in a forked child. Does not block.
    ///
    /// ```
    /// # use distlock::{LockClient, LockManager};
    /// # fn main() -> distlock::Result<()> {
    /// # let services = LockManager::new();
    /// # services.add("orders", &LockClient::open("redis://10.0.0.7/")?)?;
    /// for service in services.services() {
    ///     println!("{service}: {:?}", services.client(&service)?.ping());
    /// #   break;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn services(&self) -> Vec<Arc<str>> {
        if self.check().is_err() {
            return Vec::new();
        }
        self.0.clients.read().keys().cloned().collect()
    }

    /// A lock for `key` on the service's deployment, with the default [options](LockOptions). No I/O.
    ///
    /// As [`DistLock::new`]: it locks nothing by itself.
    ///
    /// # Errors
    ///
    /// As [`client`](LockManager::client).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::LockManager;
    /// # fn pay(services: &LockManager, tenant: &str) -> distlock::Result<()> {
    /// let guard = services.mutex(tenant, "payments")?.lock()?;
    /// guard.unlock()
    /// # }
    /// ```
    pub fn mutex(&self, service: &str, key: impl AsRef<str>) -> Result<DistLock> {
        Ok(DistLock::new(&self.client(service)?, key))
    }

    /// A lock for `key` on the service's deployment, with options of its own. No I/O.
    ///
    /// As [`DistLock::with_options`].
    ///
    /// # Errors
    ///
    /// As [`client`](LockManager::client) and [`DistLock::with_options`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::{LockManager, LockOptions};
    /// # fn pay(services: &LockManager, tenant: &str) -> distlock::Result<()> {
    /// const BRIEF: LockOptions = LockOptions::new().ttl(Duration::from_secs(5));
    /// let guard = services.mutex_with_options(tenant, "payments", &BRIEF)?.lock()?;
    /// guard.unlock()
    /// # }
    /// ```
    pub fn mutex_with_options(&self, service: &str, key: impl AsRef<str>, options: &LockOptions) -> Result<DistLock> {
        DistLock::with_options(&self.client(service)?, key, options)
    }

    /// Takes a lock for a token of the caller's, if it is free; is it the token's now?
    ///
    /// One attempt, for `ttl` (10 ms to a year), which nobody renews. The token that has it already is told
    /// `true` again, and has the full ttl from then on: never less than it had. `false`: somebody else has it,
    /// or it was over before the answer was there.
    ///
    /// **Look at the answer**: `services.add_lock(…)?;` alone runs what follows also when the lock is another's.
    ///
    /// Blocks for at most one [`io_timeout`](crate::ClientOptions::io_timeout); where a call had no answer and
    /// was sent once more, for up to four, so that no copy of it is executed after this returned an answer.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption): an unknown service, a token, ttl or key that cannot
    /// be; every other kind but `Taken`, `Lost` and `Interrupted`. After a
    /// [transient](crate::Error::is_transient) one the lock may be the token's, for its ttl: ask again with the
    /// same token, or [`release_lock`](LockManager::release_lock) it. (On a
    /// [majority of servers](crate::ClientOptions::open_nodes) a call that does not get it takes back what it
    /// got, and with it what the same token had before.)
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// # fn begin(services: &LockManager, token: &str) -> distlock::Result<()> {
    /// if services.add_lock("orders", "orders:42", token, Duration::from_secs(600))? {
    ///     println!("the order is yours for ten minutes");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_lock(&self, service: &str, key: &str, token: &str, ttl: Duration) -> Result<bool> {
        Hold::of(&self.client(service)?, key, token)?.add(ttl)
    }

    /// Releases the hold of a token; was it the token's?
    ///
    /// `false`: it was over, or is somebody else's, who keeps it. Where somebody waits in a [`DistLock`] the lock
    /// is handed over.
    ///
    /// Blocks for at most one [`io_timeout`](crate::ClientOptions::io_timeout). Where a call had no answer and
    /// was sent once more, `false` may also mean that the first copy had released it.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption): an unknown service, a token or key that cannot be;
    /// every other kind but `Taken`, `Lost` and `Interrupted`. After a
    /// [transient](crate::Error::is_transient) one it may have been released: call again, and a `false` then
    /// may mean that the first call did it. Else it ends by its ttl.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::LockManager;
    /// # fn end(services: &LockManager, token: &str) -> distlock::Result<()> {
    /// if !services.release_lock("orders", "orders:42", token)? {
    ///     println!("it took longer than the lock lasted: look at what was done");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn release_lock(&self, service: &str, key: &str, token: &str) -> Result<bool> {
        Hold::of(&self.client(service)?, key, token)?.release()
    }

    /// Asks whether a lock is held with this token, whoever took it: also a guard's
    /// [`token`](crate::DistLockGuard::token).
    ///
    /// The answer may be old when it arrives: for observers, not for decisions. Blocks for at most one
    /// [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// # Errors
    ///
    /// As [`release_lock`](LockManager::release_lock).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::LockManager;
    /// # fn show(services: &LockManager, token: &str) -> distlock::Result<()> {
    /// println!("still yours: {}", services.is_held_by("orders", "orders:42", token)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_held_by(&self, service: &str, key: &str, token: &str) -> Result<bool> {
        Hold::of(&self.client(service)?, key, token)?.is_held()
    }

    fn check(&self) -> Result<()> {
        if std::process::id() == self.0.pid {
            return Ok(());
        }
        Err(Error::invalid("this manager was made before a fork: the child process must make its own".to_owned()))
    }
}

fn unknown(service: &str, clients: &BTreeMap<Arc<str>, LockClient>) -> Error {
    if clients.is_empty() {
        return Error::invalid(format!("there is no service {service:?}: none was added"));
    }
    let mut known: Vec<String> = clients.keys().take(MOST_NAMED).map(|name| format!("{name:?}")).collect();
    if clients.len() > MOST_NAMED {
        known.push(format!("{} more", clients.len() - MOST_NAMED));
    }
    Error::invalid(format!("there is no service {service:?}: known are {}", known.join(", ")))
}

impl Default for LockManager {
    fn default() -> LockManager {
        LockManager::new()
    }
}

// As for the client.
impl UnwindSafe for LockManager {}
impl RefUnwindSafe for LockManager {}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager").field("services", &self.services()).finish_non_exhaustive()
    }
}
