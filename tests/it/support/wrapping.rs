//! A pool's manager as an application may have one, for the ways that are given a pool.

use distlock::{
    r2d2::ManageConnection,
    redis::{Client, Connection, ConnectionLike, ErrorKind, RedisError, RedisResult, Value},
};

/// A manager of the application's own.
pub(crate) struct Wrapping(pub(crate) Client);

/// Its connection: none of the redis crate's types, and not `Sync`.
pub(crate) struct Wrapped {
    inner: Connection,
    calls: std::cell::Cell<u64>,
}

impl ManageConnection for Wrapping {
    type Connection = Wrapped;
    type Error = RedisError;

    fn connect(&self) -> RedisResult<Wrapped> {
        Ok(Wrapped { inner: self.0.get_connection()?, calls: std::cell::Cell::default() })
    }

    fn is_valid(&self, connection: &mut Wrapped) -> RedisResult<()> {
        let alive = connection.check_connection();
        if alive { Ok(()) } else { Err((ErrorKind::Io, "it does not answer").into()) }
    }

    fn has_broken(&self, connection: &mut Wrapped) -> bool {
        !connection.is_open()
    }
}

impl ConnectionLike for Wrapped {
    fn req_packed_command(&mut self, cmd: &[u8]) -> RedisResult<Value> {
        self.calls.set(self.calls.get() + 1);
        self.inner.req_packed_command(cmd)
    }

    fn req_packed_commands(&mut self, cmd: &[u8], offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        self.inner.req_packed_commands(cmd, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }

    fn check_connection(&mut self) -> bool {
        self.inner.check_connection()
    }

    fn is_open(&self) -> bool {
        self.inner.is_open()
    }
}
