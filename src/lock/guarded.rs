//! Guarded writes: data in the same Redis is written only while the lock is held, in one step.

use redis::{ConnectionLike, FromRedisValue, Pipeline, RedisResult, ScriptInvocation};

use super::DistLockGuard;
use crate::error::Result;
use crate::keeping::LostReason;
use crate::nodes::Written;

impl DistLockGuard {
    /// Runs commands in the lock's Redis if the lock is still mine, in one step.
    ///
    /// Nobody gets in between the look and the commands, nor between the commands. If the lock is
    /// [lost](crate::guide::leases) none is executed.
    ///
    /// This is what [`is_valid`](DistLockGuard::is_valid) cannot do: a lease can end between a look and
    /// a write. It works for data in the same Redis (and, in a cluster, in the lock's slot); for data
    /// elsewhere there are [`fence`](DistLockGuard::fence) and [`FenceGate`](crate::FenceGate).
    ///
    /// Answers are typed as [`Pipeline::query`](https://docs.rs/redis/latest/redis/struct.Pipeline.html#method.query) does it, `ignore` included; `atomic` changes nothing. As
    /// in a pipeline, a command that fails does not stop the others, and its error is returned. Blocks
    /// for at most one [`io_timeout`](crate::ClientOptions::io_timeout).
    ///
    /// ```no_run
    /// use distlock::{DistLock, LockClient, redis};
    ///
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// let guard = DistLock::new(&client, "orders:42").lock()?;
    /// let (left,): (i64,) =
    ///     guard.query(redis::pipe().set("orders:42:state", "paid").ignore().decr("stock", 1))?;
    /// # let _ = left;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A command has at most 7000 parts. Whole numbers in answers are exact below 2^53, as everywhere
    /// in Redis scripts.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): nothing was executed.
    /// [`Unreachable`](crate::ErrorKind::Unreachable): where the text says so the commands may have been
    /// executed, or may yet be while this very hold lasts; they are never sent twice.
    /// [`WrongType`](crate::ErrorKind::WrongType), [`InvalidOption`](crate::ErrorKind::InvalidOption):
    /// Redis refused a command, and says why in the source; the others were executed. Every other kind
    /// but `Taken` and `Interrupted`.
    pub fn query<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T> {
        self.write(|connection| commands.query(connection))
    }

    /// As [`query`](DistLockGuard::query), for commands whose answers are of no interest.
    ///
    /// # Errors
    ///
    /// As [`query`](DistLockGuard::query).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{DistLockGuard, redis};
    /// # fn pay(guard: &DistLockGuard) -> distlock::Result<()> {
    /// guard.exec(redis::pipe().set("orders:42:state", "paid"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn exec(&self, commands: &Pipeline) -> Result<()> {
        self.query(commands)
    }

    /// Runs a script in the lock's Redis if the lock is still mine, in one step.
    ///
    /// If the lock is lost it is not executed. Its keys and arguments are its own; a `#!` line cannot be
    /// had. Otherwise as [`query`](DistLockGuard::query).
    ///
    /// ```no_run
    /// use distlock::{DistLock, LockClient, redis::Script};
    ///
    /// # fn main() -> distlock::Result<()> {
    /// # let client = LockClient::open("redis://127.0.0.1/")?;
    /// let guard = DistLock::new(&client, "orders:42").lock()?;
    /// let raise = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    /// let total: i64 = guard.invoke(raise.key("orders:42:total").arg(5))?;
    /// # let _ = total;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`query`](DistLockGuard::query). An error of the script stops it; what it did before stays.
    pub fn invoke<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T> {
        self.write(|connection| script.invoke(connection))
    }

    fn write<T>(&self, send: impl FnOnce(&mut dyn ConnectionLike) -> RedisResult<T>) -> Result<T> {
        self.check()?;
        let held = &self.held;
        let condition = held.key.is_of(&held.token, held.fence);
        let place = format!("under {}", self.about());
        match crate::guarded::run(&*self.keeper.nodes, condition, held.io, &place, send)? {
            Ok(value) => Ok(value),
            Err(Written::Gone) => Err(self.found_lost(Some(LostReason::Deleted))),
            Err(_) => Err(self.found_lost(Some(LostReason::Taken))),
        }
    }
}
