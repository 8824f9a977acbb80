//! A `Mutex` that spans processes and machines, for threaded programs.
//!
//! [`lock`](DistLock::lock), [`try_lock`](DistLock::try_lock) and
//! [`try_lock_for`](DistLock::try_lock_for) on Redis, released on drop. Synchronous and blocking, like
//! [`std::sync::Mutex`]; there is no async runtime inside.
//!
//! ```no_run
//! use distlock::{DistLock, LockClient};
//!
//! # fn write_order(fence: u64) {}
//! # fn main() -> distlock::Result<()> {
//! let client = LockClient::open("redis://127.0.0.1/")?; // once a process; no I/O
//! let lock = DistLock::new(&client, "orders:42"); // like Mutex::new; no I/O
//! let guard = lock.lock()?; // blocks
//! write_order(guard.fence()); // a number that only grows: hand it to what you write to
//! guard.unlock()?; // or drop it; an error means that the section was not covered
//! # Ok(())
//! # }
//! ```
//!
//! # The types
//!
//! - [`LockClient`]: a deployment, made once a process; [`ClientOptions`] for its limits.
//! - [`DistLock`]: a lock for one key; [`LockOptions`] says how long a crashed holder blocks others,
//!   how it is renewed, and how it waits.
//! - [`DistLockGuard`]: a held lock. [`FenceGate`]: the protected side of its fence, for data in Redis.
//! - [`Error`] with its [`ErrorKind`]: what to do. Somebody else having the lock is an error, too, as
//!   with [`std::sync::Mutex::try_lock`]; [`OptionalExt::optional`] makes an `Option` of it.
//! - [`Interrupt`]: ends waits from another thread. [`Wait`] and [`Backoff`]: how they wait for other
//!   processes.
//!
//! # A lease can be lost
//!
//! Redis keeps a lock for its ttl (30 s), and the guard renews it. If Redis cannot be reached for that
//! long, or the process stands still for that long, or somebody deletes the key, or Redis loses its
//! data, somebody else may get the lock while the first holder still works. No lock service can rule
//! that out; what can be done about it is done:
//!
//! - The guard knows. [`is_valid`](DistLockGuard::is_valid) turns false when the lease ends by the local
//!   clock, counted from before the request was sent, also when a renewal hangs and after the machine
//!   was suspended. [`wait_lost_for`](DistLockGuard::wait_lost_for) wakes whoever cannot look, and
//!   [`on_lost`](LockOptions::on_lost) calls back.
//! - [`unlock`](DistLockGuard::unlock) is an error if the section was not covered to its end.
//! - The [fence](DistLockGuard::fence) orders what the lease cannot: a resource that refuses numbers
//!   lower than the highest it has seen is never written by a holder that came too late.
//! - For data in Redis the write itself is guarded: [`query`](DistLockGuard::query) and
//!   [`invoke`](DistLockGuard::invoke) run only while the lock is held, in one step; a [`FenceGate`] lets
//!   only the newest holder write.
//!
//! # What it is not
//!
//! It guards no data: `Mutex<Stock>` becomes a row in a database and a lock. There is no poisoning: a
//! panic releases. The same key locked twice by one thread waits for itself. Where the data lives in
//! one database, a row lock there is the better lock.
//!
//! # Features
//!
//! - `tls-rustls`, `tls-native-tls`: TLS for `rediss://` addresses, passed through to the redis crate.
//!   With rustls the application picks the crypto provider.
//! - `testing`: the module `testing` with a [`LockClient`] without Redis, for the unit tests of what
//!   uses locks. For `[dev-dependencies]`.
//!
//! # Logging
//!
//! Through the [`log`](https://docs.rs/log) crate. `warn`: a lock was lost, a release failed, Redis
//! does not answer (once a wait). `debug`: locks acquired and released, with times. `trace`: attempts.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod clock;
mod decimal;
mod error;
mod fence;
mod fence_gate;
mod guarded;
mod keeping;
mod lock;
mod nodes;
mod options;
mod server;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod token;
mod waiting;

pub use client::{ClientOptions, LockClient};
pub use error::{Error, ErrorKind, OptionalExt, Result};
pub use fence_gate::FenceGate;
pub use keeping::{Lost, LostReason, Renew};
pub use lock::{DistLock, DistLockGuard, Holder};
pub use options::{LockOptions, Wait};
pub use waiting::{Backoff, Interrupt};

pub use {r2d2, redis};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
