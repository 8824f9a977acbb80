//! What the benches share: a private server, the raw limit, medians.
#![allow(dead_code, reason = "each bench uses a part")]

pub(crate) mod queue;

use std::{
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use distlock::redis::{self, Connection, ConnectionLike, Value};

/// A redis-server of the bench's own, ended with it. It inherits the bench's processors.
pub(crate) struct Server {
    pub(crate) port: u16,
    child: Child,
}

impl Server {
    pub(crate) fn start() -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        drop(listener);
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server on PATH (apt-get install redis-server)");
        let end = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "redis-server does not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
        Server { port, child }
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

/// One connection of the redis crate, set up as the library sets up its own.
pub(crate) fn connect(url: &str) -> Connection {
    use redis::{IntoConnectionInfo, io::tcp::TcpSettings};
    let info = url.into_connection_info().expect("an address");
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let connection = redis::Client::open(info).and_then(|client| client.get_connection()).expect("a connection");
    connection.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    connection
}

/// The raw limit: `SET NX PX` and compare-and-delete over one connection, no fence, no renewal.
pub(crate) struct Raw {
    pub(crate) connection: Connection,
    delete: String,
}

impl Raw {
    pub(crate) fn new(url: &str) -> Raw {
        let mut connection = connect(url);
        let delete = load(
            &mut connection,
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
        );
        Raw { connection, delete }
    }

    pub(crate) fn acquire(&mut self, key: &str, token: &str) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(token).arg("NX").arg("PX").arg(30_000);
        set.query(&mut self.connection).expect("SET")
    }

    pub(crate) fn release(&mut self, key: &str, token: &str) {
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&self.delete).arg(1).arg(key).arg(token);
        let deleted: i64 = delete.query(&mut self.connection).expect("EVALSHA");
        assert_eq!(deleted, 1);
    }
}

/// Our own scripts over one bare connection, packed by hand into a buffer that is used again.
pub(crate) struct Bare {
    connection: Connection,
    /// What is the same in every call of `try` and `release`.
    heads: [Vec<u8>; 2],
    buffer: Vec<u8>,
    n: u64,
}

impl Bare {
    pub(crate) fn new(url: &str, key: &str) -> Bare {
        let mut connection = connect(url);
        let scripts =
            [include_str!("../../src/server/script/try.lua"), include_str!("../../src/server/script/release.lua")];
        let helper = |name: &str| format!("distlock:{name}:{{{key}}}");
        let keys = ["4", key, &helper("fence"), &helper("queue"), &helper("waiters")];
        let heads = [(scripts[0], 12), (scripts[1], 9)].map(|(source, parts)| {
            let hash = load(&mut connection, source);
            let mut head = format!("*{parts}\r\n");
            for part in ["EVALSHA", &hash].iter().chain(&keys) {
                head.push_str(&format!("${}\r\n{part}\r\n", part.len()));
            }
            head.into_bytes()
        });
        Bare { connection, heads, buffer: Vec::new(), n: 0 }
    }

    pub(crate) fn cycle(&mut self) {
        const TOKEN: &str = "d0.0123456789abcdef0123456789abcdef-12345-4711";
        assert!(self.acquire(TOKEN));
        self.release(TOKEN);
    }

    pub(crate) fn acquire(&mut self, token: &str) -> bool {
        self.n += 1;
        let n = self.n.to_string();
        self.call(0, &[&n, token, "30000", "1764547200000000", "3000000000000000"]).starts_with(b"held ")
    }

    pub(crate) fn release(&mut self, token: &str) {
        let n = self.n.to_string();
        assert!(self.call(1, &[&n, token]).starts_with(b"1 "));
    }

    fn call(&mut self, script: usize, args: &[&str]) -> Vec<u8> {
        self.buffer.clear();
        self.buffer.extend_from_slice(&self.heads[script]);
        let mut digits = [0; 20];
        for part in args {
            self.buffer.push(b'$');
            self.buffer.extend_from_slice(decimal(&mut digits, part.len()));
            self.buffer.extend_from_slice(b"\r\n");
            self.buffer.extend_from_slice(part.as_bytes());
            self.buffer.extend_from_slice(b"\r\n");
        }
        match self.connection.req_packed_command(&self.buffer) {
            Ok(Value::BulkString(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }
}

fn decimal(digits: &mut [u8; 20], mut n: usize) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &digits[at..];
        }
    }
}

fn load(connection: &mut Connection, source: &str) -> String {
    redis::cmd("SCRIPT").arg("LOAD").arg(source).query(connection).expect("SCRIPT LOAD")
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How many scripts were called by their hashes, as the server counted them.
pub(crate) fn scripts(port: u16) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connect(&url(port))).expect("INFO");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap_or("0");
    line.split(',').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
