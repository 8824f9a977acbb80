//! The protected side of fences, for data in Redis: a gate that no late holder passes.

use std::{fmt, sync::Arc};

use redis::{ConnectionLike, FromRedisValue, Pipeline, RedisResult, ScriptInvocation};

use crate::client::LockClient;
use crate::error::{About, Error, Result};
use crate::fence;
use crate::nodes::{Condition, Written};

/// Writes to a resource only for the newest holder of a lock: a write with a lower
/// [fence](crate::DistLockGuard::fence) than the highest that was seen is refused.
///
/// [A lease can be lost](crate::guide::leases) while its holder works, and then the holder is late: what it
/// writes must not undo what its successor wrote. For data in the lock's own Redis
/// [`DistLockGuard::query`](crate::DistLockGuard::query) looks at the lock itself. A gate is for data in
/// another Redis, which knows nothing of the lock: it keeps the highest fence beside the data, and looks
/// at it and writes in one step.
///
/// The fence is kept under a key of your choice, for as long as the resource is there: it has no ttl of
/// its own (one that you give it stays), and goes when you delete it. One gate for each resource that
/// one lock protects, and the same key in every process.
///
/// ```no_run
/// use distlock::{DistLock, FenceGate, LockClient, redis};
///
/// # fn main() -> distlock::Result<()> {
/// let locks = LockClient::open("redis://locks/")?;
/// let data = LockClient::open("redis://data/")?;
/// let gate = FenceGate::new(&data, "orders:42:fence");
///
/// let guard = DistLock::new(&locks, "orders:42").lock()?;
/// gate.exec(guard.fence(), redis::pipe().set("orders:42:state", "paid"))?;
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
///
/// A SQL database needs no gate, only a column: `UPDATE orders SET state = $1, fence = $2 WHERE id = $3
/// AND fence <= $2`, and no row changed means refused. A file or a service of your own does the same:
/// keep the highest fence with the data, refuse what is lower.
#[derive(Clone)]
#[must_use = "a gate guards what is written through it"]
pub struct FenceGate {
    client: LockClient,
    key: Arc<str>,
}

impl FenceGate {
    /// Makes a gate in the Redis of `client`, whose highest fence stands in `key`. No I/O.
    ///
    /// ```
    /// use distlock::{FenceGate, LockClient};
    ///
    /// let client = LockClient::open("redis://127.0.0.1/")?;
    /// let gate = FenceGate::new(&client, "orders:42:fence");
    /// assert_eq!(gate.key(), "orders:42:fence");
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn new(client: &LockClient, key: impl AsRef<str>) -> FenceGate {
        FenceGate { client: client.clone(), key: key.as_ref().into() }
    }

    /// Runs commands if the gate has seen no higher fence, in one step, and has it refuse lower ones
    /// from then on.
    ///
    /// Otherwise none is executed. The same fence passes again: a holder writes as often as it likes.
    /// Without commands it only shows the fence to the gate.
    ///
    /// Answers and limits are those of [`DistLockGuard::query`](crate::DistLockGuard::query). Blocks for at
    /// most one [`io_timeout`](crate::ClientOptions::io_timeout) of the gate's client.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): a higher fence was seen, and nothing was executed.
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption): a fence that is none (0, or 2^53 and above);
    /// [`WrongType`](crate::ErrorKind::WrongType): the key holds no fence. Other kinds as for
    /// [`DistLockGuard::query`](crate::DistLockGuard::query); a write whose outcome is unknown may be
    /// written again with the same fence.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLockGuard, FenceGate, redis};
    /// # fn sell(gate: &FenceGate, guard: &DistLockGuard) -> distlock::Result<()> {
    /// let (left,): (i64,) = gate.query(guard.fence(), redis::pipe().decr("stock", 1))?;
    /// # let _ = left;
    /// # Ok(())
    /// # }
    /// ```
    pub fn query<T: FromRedisValue>(&self, fence: u64, commands: &Pipeline) -> Result<T> {
        self.write(fence, |connection| commands.query(connection))
    }

    /// As [`query`](FenceGate::query), for commands whose answers are of no interest.
    ///
    /// # Errors
    ///
    /// As [`query`](FenceGate::query).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLockGuard, ErrorKind, FenceGate, redis};
    /// # fn pay(gate: &FenceGate, guard: &DistLockGuard) -> distlock::Result<()> {
    /// match gate.exec(guard.fence(), redis::pipe().set("orders:42:state", "paid")) {
    ///     Err(e) if e.kind() == ErrorKind::Lost => println!("another holder has written: {e}"),
    ///     other => other?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn exec(&self, fence: u64, commands: &Pipeline) -> Result<()> {
        self.query(fence, commands)
    }

    /// Runs a script if the gate has seen no higher fence.
    ///
    /// As [`query`](FenceGate::query) and [`DistLockGuard::invoke`](crate::DistLockGuard::invoke).
    ///
    /// # Errors
    ///
    /// As [`query`](FenceGate::query).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLockGuard, FenceGate, redis::Script};
    /// # fn raise(gate: &FenceGate, guard: &DistLockGuard) -> distlock::Result<()> {
    /// let raise = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    /// let total: i64 = gate.invoke(guard.fence(), raise.key("orders:42:total").arg(5))?;
    /// # let _ = total;
    /// # Ok(())
    /// # }
    /// ```
    pub fn invoke<T: FromRedisValue>(&self, fence: u64, script: &ScriptInvocation<'_>) -> Result<T> {
        self.write(fence, |connection| script.invoke(connection))
    }

    /// The key that holds the highest fence. Does not block. [`new`](FenceGate::new) has an example.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    fn write<T>(&self, fence: u64, send: impl FnOnce(&mut dyn ConnectionLike) -> RedisResult<T>) -> Result<T> {
        let keeper = &self.client.keeper;
        if keeper.is_inherited() {
            return Err(About { key: &self.key, client: &keeper.name }.inherited());
        }
        if fence == 0 || fence >= fence::LIMIT {
            return Err(Error::invalid(format!("{fence} is no fence: they lie between 0 and 2^53")));
        }
        let condition = Condition::Newest { gate: &self.key, fence };
        let place = format!("through {self:?}");
        match crate::guarded::run(&*keeper.nodes, condition, keeper.io_timeout, &place, send)? {
            Ok(value) => Ok(value),
            Err(Written::Stale(seen)) => Err(Error::stale(format!("{self:?}"), fence, seen)),
            Err(other) => Err(Error::strange(&place, &other)),
        }
    }
}

impl fmt::Debug for FenceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gate {:?} on {:?}", self.key, self.client.keeper.name)
    }
}
