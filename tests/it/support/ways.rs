//! Every way of building a lock: a law is written once and runs on all of them.

use std::time::Duration;

use distlock::{ClientOptions, LockClient};
use redis::{ConnectionLike, RedisResult, Value};

use super::Server;

/// A server, and one way to get clients of it.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) server: Server,
    open: fn(&Server) -> LockClient,
}

impl Way {
    pub(crate) fn client(&self) -> LockClient {
        (self.open)(&self.server)
    }

    /// One command on the database that the locks live in.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, parts: &[&str]) -> T {
        let url = if self.name == LOGIN { login(&self.server) } else { self.server.url() };
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut command = redis::cmd(parts[0]);
        command.arg(&parts[1..]);
        command.query(&mut connection).unwrap_or_else(|e| panic!("{parts:?} on {}: {e}", self.name))
    }
}

const LOGIN: &str = "a password and a database";

/// Runs a law on every way, each with a server of its own.
pub(crate) fn on_every_way(law: impl Fn(&Way)) {
    for (name, arguments, open) in ways() {
        let server = Server::with(arguments);
        law(&Way { name, server, open });
    }
}

type Opening = (&'static str, &'static [&'static str], fn(&Server) -> LockClient);

fn ways() -> [Opening; 7] {
    [
        ("an address", &[], |server| LockClient::open(server.url()).unwrap()),
        ("one connection", &[], |server| ClientOptions::new().max_connections(1).open(server.url()).unwrap()),
        (LOGIN, &["--requirepass", "se:cret"], |server| LockClient::open(login(server)).unwrap()),
        ("a unix socket", &["--unixsocket", "redis.sock"], |server| {
            LockClient::open(format!("unix://{}", server.folder().join("redis.sock").display())).unwrap()
        }),
        ("a given pool", &[], |server| LockClient::from_pool(pool(server, 4))),
        ("a given pool of one", &[], |server| LockClient::from_pool(pool(server, 1))),
        ("a given pool of a type of its own", &[], |server| {
            let manager = Wrapping(redis::Client::open(server.url()).unwrap());
            LockClient::from_pool(r2d2::Pool::builder().max_size(3).build(manager).unwrap())
        }),
    ]
}

fn login(server: &Server) -> String {
    format!("redis://:se%3Acret@127.0.0.1:{}/3", server.port())
}

fn pool(server: &Server, size: u32) -> r2d2::Pool<redis::Client> {
    let client = redis::Client::open(server.url()).unwrap();
    r2d2::Pool::builder().max_size(size).connection_timeout(Duration::from_secs(5)).build(client).unwrap()
}

/// A manager whose connections are not the redis crate's own.
struct Wrapping(redis::Client);

struct Wrapped(redis::Connection);

impl r2d2::ManageConnection for Wrapping {
    type Connection = Wrapped;
    type Error = redis::RedisError;

    fn connect(&self) -> Result<Wrapped, Self::Error> {
        self.0.get_connection().map(Wrapped)
    }

    fn is_valid(&self, connection: &mut Wrapped) -> Result<(), Self::Error> {
        redis::cmd("PING").exec(connection)
    }

    fn has_broken(&self, connection: &mut Wrapped) -> bool {
        !connection.is_open()
    }
}

impl ConnectionLike for Wrapped {
    fn req_packed_command(&mut self, cmd: &[u8]) -> RedisResult<Value> {
        self.0.req_packed_command(cmd)
    }

    fn req_packed_commands(&mut self, cmd: &[u8], offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        self.0.req_packed_commands(cmd, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }

    fn check_connection(&mut self) -> bool {
        self.0.check_connection()
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }
}
