//! A `Mutex` that spans processes and machines, for threaded programs.
//!
//! [`lock`](DistLock::lock), [`try_lock`](DistLock::try_lock) and
//! [`try_lock_for`](DistLock::try_lock_for) on Redis or Valkey, released on drop. Synchronous and blocking,
//! like [`std::sync::Mutex`]; there is no async runtime inside.
//!
//! ```no_run
//! use distlock::{DistLock, LockClient};
//!
//! fn write_order(fence: u64) { /* hand the fence to what you write to */ }
//!
//! fn main() -> distlock::Result<()> {
//!     let client = LockClient::open("redis://127.0.0.1/")?; // once a process; no I/O
//!     let lock = DistLock::new(&client, "orders:42"); // like Mutex::new; no I/O
//!     let guard = lock.lock()?; // blocks
//!     write_order(guard.fence()); // a number that only grows
//!     guard.unlock()?; // or drop it; an error means that the section was not covered
//!     Ok(())
//! }
//! ```
//!
//! # What it is not
//!
//! - **It guards no data.** `Mutex<Stock>` becomes a row in a database and a lock; the compiler does not
//!   notice that one was forgotten.
//! - **It is a lease, and [a lease can be lost](guide::leases)**, when Redis or the holder is away for too long.
//!   Read that page before the first lock goes into production.
//! - **It is not reentrant**: the same key twice in one thread waits for itself. **There is no poisoning**:
//!   a panic releases.
//! - **It is one Redis server's lock**, that of a master that [Sentinels](ClientOptions::open_sentinel) watch, or of
//!   the node of a [cluster](ClientOptions::open_cluster) that has its key. `ClientOptions::open_nodes` makes it one
//!   of a majority of several servers.
//! - **It is not always the better lock.** Where the data lives in one database, a row lock there is; where
//!   all contenders run on one host, [`std::fs::File::lock`] is. [Choosing](guide::choosing) has a table.
//!
//! # The types
//!
//! - [`LockClient`]: a deployment, made once a process; [`ClientOptions`] for its limits.
//! - [`DistLock`]: a lock for one key; [`LockOptions`] says how long a crashed holder blocks others,
//!   how it is renewed, and how it waits.
//! - [`DistLockGuard`]: a held lock. [`FenceGate`]: the protected side of its fence, for data in Redis.
//! - [`LockManager`]: deployments by name, for programs that learn them while they run; holds by a token of
//!   the caller's, without a guard.
//! - [`TimestampLock`]: the protocol of old fleets (SETNX, GETSET), for interoperation only.
//! - [`Error`] with its [`ErrorKind`]: what to do. Somebody else having the lock is an error, too, as
//!   with [`std::sync::Mutex::try_lock`]; [`OptionalExt::optional`] makes an `Option` of it.
//! - [`Interrupt`]: ends waits from another thread. [`Wait`] and [`Backoff`]: how they wait for other
//!   processes.
//!
//! # The guide
//!
//! - [A lease can be lost](guide::leases): what is promised, and what you see of each fault.
//! - [Moving from `Mutex`](guide::from_mutex): eleven things that people get wrong.
//! - [Choosing](guide::choosing): which lock for which need; how to choose the options.
//! - [Operating](guide::operating): what stands in Redis, rights, settings, sizes, log lines.
//! - [Names](guide::names): what `std`, `parking_lot`, Java, Redisson and others call it.
//!
//! # What it promises
//!
//! 1. **Mutual exclusion** while every holder finishes inside its lease: two guards for one key are never
//!    both [valid](DistLockGuard::is_valid). To you: a section whose `unlock()` is `Ok` was covered
//!    by its lease from end to end. Where the lease was lost, the [fence](DistLockGuard::fence) orders what
//!    was written.
//! 2. **A guard exists only if the lock was acquired**, and it is valid from before the request was sent, less
//!    1 % of the ttl and 2 ms for clocks. To you: a guard in hand means held; no answer that is late, lost or
//!    another call's is taken for a lock.
//! 3. **Release and renewal touch only one's own hold.** To you: a late `drop` deletes nothing of the next
//!    holder's, and a lock that vanished is not brought back behind somebody's back.
//! 4. **Every wait has a bound.** To you: [`try_lock_for(d)`](DistLock::try_lock_for) returns within `d` plus one
//!    [`io_timeout`](ClientOptions::io_timeout) (1 s), and a drop within one, whatever Redis does. (With a
//!    [pool of your own](LockClient::from_pool) the limits are its manager's.)
//! 5. **A lost reply costs nothing lasting.** To you: after a network fault no lock stays taken by an
//!    attempt whose caller was told that it failed.
//! 6. **A lost lock is noticed** when its lease ends by the local clock at the latest, even while a renewal
//!    hangs. To you: `is_valid()`, [`wait_lost_for`](DistLockGuard::wait_lost_for),
//!    [`on_lost`](LockOptions::on_lost) and [`unlock`](DistLockGuard::unlock) tell.
//! 7. **Fences only grow** for a key, also when Redis loses its data, unless its clock went back by more than
//!    the time since the last one. To you: the resource's rule is one comparison.
//! 8. **Waiting threads hold no connection**, and none is held while your code runs. To you: a small pool
//!    serves many threads.
//! 9. **Nothing is left behind**: no key without a ttl, no thread, on every way out. To you: nothing to
//!    sweep. (Fences stay for 24 h; the key of a [`FenceGate`] is your own data and stays.)
//! 10. **Constructing does no I/O.** To you: a program can start before Redis does;
//!     [`ping`](LockClient::ping) asks now.
//!
//! Each is checked on real servers, with the faults that threaten it: [the table](guide::leases#what-you-see-of-each-fault).
//!
//! # Features
//!
//! None is on by default.
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
//! [Operating](guide::operating#log-lines) has every line and what to do about it.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod clock;
mod decimal;
mod error;
mod fence;
mod fence_gate;
mod guarded;
#[cfg(any(doc, doctest))]
pub mod guide;
mod keeping;
mod lock;
mod manager;
mod monitor;
mod nodes;
mod optional;
mod options;
mod server;
mod stamp;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod timestamp_lock;
mod token;
mod waiting;

pub use client::{ClientOptions, LockClient};
pub use error::{Error, ErrorKind, Result};
pub use fence_gate::FenceGate;
pub use keeping::{Lost, LostReason, Renew};
pub use lock::{DistLock, DistLockGuard, Holder};
pub use manager::LockManager;
pub use optional::OptionalExt;
pub use options::{LockOptions, Wait};
pub use stamp::{StampClock, StampUnit};
pub use timestamp_lock::{TimestampLock, TimestampLockGuard, TimestampOptions};
pub use waiting::{Backoff, Interrupt};

pub use {r2d2, redis};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
