//! A real redis-server on a free loopback port, started by the test and ended with it.

use std::{
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

pub(crate) struct Server {
    port: u16,
    folder: PathBuf,
    extra: Vec<String>,
    child: Child,
}

impl Server {
    /// A server with default settings that stores nothing.
    pub(crate) fn start() -> Server {
        Server::with(&[])
    }

    /// A server with further arguments, as on its command line: `["--requirepass", "x"]`.
    pub(crate) fn with(extra: &[&str]) -> Server {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("distlock-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for the server");
        let extra: Vec<String> = extra.iter().map(|&arg| arg.to_owned()).collect();
        // Another process can take a free port before the server does.
        for _ in 0..20 {
            let port = free_port();
            let mut child = spawn(port, &folder, &extra);
            if is_up(port, &folder, &mut child) {
                return Server { port, folder, extra, child };
            }
        }
        panic!("no redis-server came up; is it installed? (apt-get install redis-server)");
    }

    /// Another replica of this server, which confirms what is written from now on.
    pub(crate) fn replica(&self) -> Server {
        let others = self.ask::<String>(&["INFO", "replication"]).matches("state=online").count();
        let replica = Server::with(&["--replicaof", "127.0.0.1", &self.port.to_string()]);
        let (mut connection, end) = (self.connection(), Instant::now() + Duration::from_secs(30));
        // It is called online before it has loaded what there was, and confirms nothing until then.
        let mut confirms = || {
            let mut all = redis::pipe();
            all.cmd("SET").arg("up").arg(1).ignore().cmd("DEL").arg("up").ignore().cmd("WAIT").arg(others + 1).arg(100);
            let (count,): (usize,) = all.query(&mut connection).expect("a count");
            count > others
        };
        // Twice: what was written before it was there, it need not confirm.
        while !(confirms() && confirms()) {
            assert!(Instant::now() < end, "the replica does not come into step");
        }
        replica
    }

    /// Has its clock be one that [`step_clock`](Server::step_clock) steps. It is empty afterwards.
    pub(crate) fn with_a_clock_of_its_own(mut self) -> Server {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/clock.c");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]).arg(self.folder.join(CLOCK)).arg(source).arg("-ldl");
        assert!(compile.status().expect("a C compiler").success(), "the clock does not compile");
        self.step_clock(0);
        self.kill();
        self.restart();
        self
    }

    /// From now on its clock is that of the machine and so many seconds.
    pub(crate) fn step_clock(&self, seconds: i64) {
        std::fs::write(self.folder.join(STEP), format!("{seconds:<31}")).expect("a file");
    }

    /// Its data files, while it is down.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// A plain connection, past the crate under test.
    pub(crate) fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("an address");
        let connection = client.get_connection_with_timeout(Duration::from_secs(5)).expect("a connection");
        connection.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        connection
    }

    /// One command on a connection of its own.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, parts: &[&str]) -> T {
        let mut command = redis::cmd(parts[0]);
        parts[1..].iter().for_each(|part| {
            command.arg(part);
        });
        command.query(&mut self.connection()).unwrap_or_else(|e| panic!("{parts:?}: {e}"))
    }

    /// The node of a cluster serves these slots.
    pub(crate) fn serve(&self, slots: std::ops::RangeInclusive<u16>) {
        let mut command = redis::cmd("CLUSTER");
        command.arg("ADDSLOTS").arg(slots.collect::<Vec<_>>());
        let () = command.query(&mut self.connection()).expect("slots that nobody has");
    }

    /// Stops the process where it stands: connections stay open, nothing answers.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
    }

    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    /// kill −9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a kill");
        self.child.wait().expect("an end");
    }

    /// Starts it again on the same port after [`kill`](Server::kill), with what it had stored.
    pub(crate) fn restart(&mut self) {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            self.child = spawn(self.port, &self.folder, &self.extra);
            if is_up(self.port, &self.folder, &mut self.child) {
                return;
            }
            assert!(Instant::now() < end, "the server does not come back on port {}", self.port);
        }
    }

    /// Its next snapshot fails, and from then on it refuses writes (MISCONF).
    pub(crate) fn break_snapshots(&self) {
        let _: () = self.ask(&["CONFIG", "SET", "rdbcompression", "no"]);
        std::fs::create_dir(self.folder.join("dump.rdb")).expect("a folder in the way of the snapshot");
        let _: redis::Value = redis::cmd("BGSAVE").query(&mut self.connection()).unwrap_or(redis::Value::Nil);
        let end = Instant::now() + Duration::from_secs(10);
        while !self.ask::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err") {
            assert!(Instant::now() < end, "the snapshot did not fail");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status();
        assert!(status.expect("kill").success(), "kill -{name}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A port that refuses: no test's server can get it.
pub(crate) const NOBODY: u16 = 1;

/// A port that nothing listens on.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

const LOG: &str = "server.log";
/// The shim of a clock that a test steps, and the file with its seconds.
const CLOCK: &str = "clock.so";
const STEP: &str = "clock.step";

fn spawn(port: u16, folder: &Path, extra: &[String]) -> Child {
    let _ = std::fs::remove_file(folder.join(LOG));
    let mut command = Command::new(program());
    let clock = folder.join(CLOCK);
    if clock.exists() {
        command.env("LD_PRELOAD", clock).env("CLOCK_STEP", folder.join(STEP));
    }
    if extra.iter().any(|arg| arg == "--sentinel") {
        // It keeps what it knows in its configuration, and does not start without a file for it.
        let file = folder.join("sentinel.conf");
        std::fs::write(&file, "").expect("a file for the Sentinel");
        command.arg(file);
    }
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--repl-diskless-sync-delay", "0"])
        .args(if is_6() { &[][..] } else { &["--enable-debug-command", "yes"] })
        // Redis 6 opens it before it goes to its folder.
        .arg("--logfile")
        .arg(folder.join(LOG))
        .arg("--dir")
        .arg(folder)
        .args(extra)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e} (apt-get install redis-server, or see tests/versions)", program()))
}

/// Redis 6 has no switch for DEBUG, which is always on.
pub(crate) fn is_6() -> bool {
    static IS_6: LazyLock<bool> = LazyLock::new(|| {
        let said = Command::new(program()).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("v=6."))
    });
    *IS_6
}

/// The server that the suite runs on, which may be another version or another program: see `tests/versions`.
fn program() -> String {
    std::env::var("DISTLOCK_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Does this very process listen there, and not another whose port it wanted?
fn is_up(port: u16, folder: &Path, child: &mut Child) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        if child.try_wait().expect("a status").is_some() {
            return false;
        }
        // It says so when it has its port; a server that loads its data accepts connections by then.
        let log = std::fs::read_to_string(folder.join(LOG)).unwrap_or_default();
        let has_port = log.contains("Server initialized") || log.contains("Sentinel ID is");
        if has_port && TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}
