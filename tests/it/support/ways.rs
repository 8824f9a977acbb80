//! The ways of building a client. A law is written once and run on each of them, side by side, every
//! way with a server of its own.

use std::{
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

use distlock::{
    ClientOptions, DistLock, LockClient, LockOptions,
    r2d2::{ManageConnection, Pool},
    redis::{self, Client, Connection, ConnectionLike, ErrorKind, RedisError, RedisResult, Value},
};

use super::{Server, eventually};
use crate::demo_server::DemoServer;

type Open = fn(&str) -> LockClient;

const WAYS: [(&str, Where, Open); 8] = [
    ("open", Where::Tcp, |url| LockClient::open(url).unwrap()),
    ("one connection", Where::Tcp, |url| ClientOptions::new().max_connections(1).open(url).unwrap()),
    ("password and database", Where::Password, |url| LockClient::open(url).unwrap()),
    ("unix socket", Where::Socket, |url| LockClient::open(url).unwrap()),
    ("given pool", Where::Tcp, |url| LockClient::from_pool(pool(plain(url), 4))),
    ("given pool of one", Where::Tcp, |url| LockClient::from_pool(pool(plain(url), 1))),
    ("given pool of wrappers", Where::Tcp, |url| LockClient::from_pool(pool(Wrapping(plain(url)), 4))),
    ("demo server", Where::Demo, |url| LockClient::open(url).unwrap()),
];

enum Where {
    Tcp,
    Password,
    Socket,
    /// Of the examples: the laws keep it to what a real server does.
    Demo,
}

/// Ends with the value.
enum Running {
    Real { _server: Server },
    Demo { _server: DemoServer },
}

/// One way of building a client, with its server.
pub(crate) struct Way {
    _running: Running,
    url: String,
    socket: Option<PathBuf>,
    open: Open,
}

/// Runs a law on every way, and says on which it is broken.
#[track_caller]
pub(crate) fn every_way(law: impl Fn(&Way) + Sync) {
    let broken: Vec<&str> = thread::scope(|scope| {
        let law = &law;
        let run = |(name, place, open): &(&'static str, Where, Open)| {
            let way = Way::at(place, *open);
            // A panic's message begins with the thread's name.
            let builder = thread::Builder::new().name((*name).to_owned());
            (*name, builder.spawn_scoped(scope, move || law(&way)).expect("a thread"))
        };
        let threads: Vec<_> = WAYS.iter().map(run).collect();
        threads.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect()
    });
    assert!(broken.is_empty(), "broken on: {}", broken.join(", "));
}

impl Way {
    fn at(place: &Where, open: Open) -> Way {
        let real = |server: Server, url, socket| Way { _running: Running::Real { _server: server }, url, socket, open };
        match place {
            Where::Tcp => {
                let server = Server::start();
                let url = server.url();
                real(server, url, None)
            }
            Where::Password => {
                let server = Server::with(&["--requirepass", "s3cret"]);
                let url = format!("redis://:s3cret@127.0.0.1:{}/3", server.port());
                real(server, url, None)
            }
            Where::Socket => {
                let path = socket_path();
                let text = path.to_str().expect("a path in UTF-8");
                let server = Server::with(&["--unixsocket", text]);
                eventually(Duration::from_secs(5), "the socket is there", || UnixStream::connect(&path).is_ok());
                let url = format!("unix://{text}");
                real(server, url, Some(path))
            }
            Where::Demo => {
                let server = DemoServer::start().expect("a free port");
                Way { url: server.url(), _running: Running::Demo { _server: server }, socket: None, open }
            }
        }
    }

    /// A client of its own: nothing is shared with another.
    pub(crate) fn client(&self) -> LockClient {
        (self.open)(&self.url)
    }

    /// A lock of a client of its own.
    pub(crate) fn lock(&self, key: &str, options: &LockOptions) -> DistLock {
        DistLock::with_options(&self.client(), key, options).unwrap()
    }

    /// One command past the crate under test, in the same database.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, parts: &[&str]) -> T {
        self.try_ask(parts).unwrap_or_else(|e| panic!("{parts:?}: {e}"))
    }

    pub(crate) fn try_ask<T: redis::FromRedisValue>(&self, parts: &[&str]) -> RedisResult<T> {
        let mut connection = plain(&self.url).get_connection_with_timeout(Duration::from_secs(5))?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        redis::cmd(parts[0]).arg(&parts[1..]).query(&mut connection)
    }

    pub(crate) fn value(&self, key: &str) -> Option<String> {
        self.ask(&["GET", key])
    }

    /// How many script calls the server has executed.
    pub(crate) fn script_calls(&self) -> u64 {
        script_calls(&self.ask::<String>(&["INFO", "commandstats"]))
    }

    /// Every key that is no fence.
    pub(crate) fn left_over(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.retain(|key| !key.starts_with("distlock:fence"));
        keys
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Calls of EVALSHA and EVAL in the answer of `INFO commandstats`.
pub(crate) fn script_calls(stats: &str) -> u64 {
    let calls = |line: &str| {
        let line = line.strip_prefix("cmdstat_evalsha:calls=").or_else(|| line.strip_prefix("cmdstat_eval:calls="))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    stats.lines().filter_map(calls).sum()
}

fn socket_path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("distlock-{}-{}.sock", std::process::id(), COUNT.fetch_add(1, Relaxed));
    std::env::temp_dir().join(name)
}

fn plain(url: &str) -> Client {
    Client::open(url).expect("an address")
}

fn pool<M: ManageConnection>(manager: M, size: u32) -> Pool<M> {
    let builder = Pool::builder().max_size(size).min_idle(Some(0)).connection_timeout(Duration::from_secs(5));
    builder.build(manager).expect("a pool")
}

/// A manager of the application's own.
struct Wrapping(Client);

/// Its connection: none of the redis crate's types, and not `Sync`.
struct Wrapped {
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
