//! A `Mutex` that spans processes and machines, for threaded programs: `lock()`, `try_lock()`,
//! `try_lock_for()` on Redis, released on drop. Synchronous, blocking, no async runtime.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod clock;
mod decimal;
mod error;
mod fence;
mod keeping;
mod lock;
mod nodes;
mod options;
mod server;
mod sync;
mod token;
mod waiting;

pub use client::{ClientOptions, LockClient};
pub use error::{Error, ErrorKind, OptionalExt, Result};
pub use keeping::Renew;
pub use lock::{DistLock, DistLockGuard, Holder};
pub use options::LockOptions;
pub use waiting::{Backoff, Interrupt};

pub use {r2d2, redis};
