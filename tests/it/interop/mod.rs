//! Beside real clients of others on one key: processes of theirs and of ours count one number, which only
//! exclusion makes right, and each says if it lost a hold or was refused its own release.
//!
//! `./test` installs them under `target/interop`. Where there is no Python or no Node these tests are
//! skipped, which they say aloud; with `DISTLOCK_CLIENTS=required` that is a failure.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use distlock::{DistLock, ErrorKind, LockClient, StampUnit, TimestampLock, TimestampOptions};
use redis::Commands;

use crate::support::{Server, eventually, workers};

const LONG: Duration = Duration::from_secs(120);
/// Of each process.
const SECTIONS: usize = 40;
/// How long the stamp of one that crashed blocks the others.
const TTL: Duration = Duration::from_secs(1);
/// Every so many sections a process of the timestamp protocol leaves its stamp behind.
const CRASHES: usize = 25;

/// What runs the clients of a language.
enum Tool {
    /// Python with the libraries of `requirements.txt`.
    Libraries,
    Python,
    Node,
}

impl Tool {
    /// The program, and where it finds libraries; `None`: it is not here.
    fn find(&self) -> Option<(PathBuf, PathBuf)> {
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop");
        let modules = installed.join("node/node_modules");
        let (program, there) = match self {
            Tool::Libraries => (installed.join("venv/bin/python"), installed.join("venv/list").exists()),
            Tool::Python => ("python3".into(), true),
            Tool::Node => ("node".into(), modules.join("redlock").exists()),
        };
        let runs = |program: &Path| {
            let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        (there && runs(&program)).then_some((program, modules))
    }

    fn missing(&self) -> &'static str {
        match self {
            Tool::Libraries => "the Python libraries of tests/it/interop/clients/requirements.txt",
            Tool::Python => "python3",
            Tool::Node => "node, with the packages of tests/it/interop/clients/package.json",
        }
    }
}

/// A client of others, told its port and these further words; `None` where it cannot run, which is said.
fn client(tool: &Tool, script: &str) -> Option<impl Fn(&Server, &[&str]) -> Child> {
    let Some((program, modules)) = tool.find() else {
        let missing = tool.missing();
        let required = std::env::var("DISTLOCK_CLIENTS").is_ok_and(|value| value == "required");
        assert!(!required, "{missing} missing; ./test installs the libraries where python3, node and npm are");
        // Past the capture of a test's output.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {script} beside distlock: {missing} missing (see README, tests)");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/interop/clients").join(script);
    Some(move |server: &Server, words: &[&str]| {
        Command::new(&program)
            .arg(&script)
            .args([server.port().to_string(), SECTIONS.to_string()])
            .args(words)
            .env("NODE_PATH", &modules)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .spawn()
            .expect("a client")
    })
}

/// What a process of ours does.
pub(crate) fn count(what: &str, url: &str) {
    let client = LockClient::open(url).unwrap();
    let mut store = redis::Client::open(url).unwrap().get_connection().unwrap();
    let _: usize = store.incr("ready", 1).unwrap();
    eventually(LONG, "all four are there", || store.get::<_, usize>("ready").unwrap() == 4);
    let mut section = |name: &str| {
        let n: usize = store.get::<_, Option<usize>>("n").unwrap().unwrap_or(0);
        thread::sleep(Duration::from_millis(1));
        redis::pipe().set("n", n + 1).rpush("order", name).exec(&mut store).unwrap();
    };
    let words: Vec<&str> = what.split(' ').collect();
    for i in 1..=SECTIONS {
        match *words {
            ["lock", key, pause] => {
                let guard = DistLock::new(&client, key).lock().unwrap();
                section("ours");
                guard.unlock().expect("nobody deleted or took it");
                thread::sleep(Duration::from_millis(pause.parse().unwrap()));
            }
            ["stamp", unit, digits] => {
                stamped(&client, unit, digits, i, || section("ours"));
                thread::sleep(Duration::from_millis(3));
            }
            _ => panic!("no such task: {what}"),
        }
    }
}

fn stamped(client: &LockClient, unit: &str, digits: &str, i: usize, section: impl FnOnce()) {
    let options = TimestampOptions::new().ttl(TTL);
    let options = match unit {
        "s" => options.unit(StampUnit::Seconds),
        _ => options.digits(digits.parse().unwrap()).keep_key(),
    };
    let guard = TimestampLock::with_options(client, "k", &options).unwrap().lock().unwrap();
    section();
    assert!(guard.is_valid(), "this machine stood still for longer than the test can bear");
    if i.is_multiple_of(CRASHES) {
        std::mem::forget(guard);
    } else if let Err(e) = guard.unlock() {
        // An old client that lost the race for a stamp that was over has overwritten ours.
        assert_eq!(e.kind(), ErrorKind::Lost);
    }
}

/// Two processes of theirs and two of ours.
fn side_by_side(server: &Server, theirs: impl Fn() -> Child, ours: [&str; 2]) {
    let start = |what: &str| workers::start(&format!("beside {what}"), server);
    let children = [theirs(), start(ours[0]), theirs(), start(ours[1])];
    children.into_iter().for_each(|child| workers::ends_well(child, LONG));
    assert_eq!(server.ask::<usize>(&["GET", "n"]), 4 * SECTIONS, "no update was lost");
    let order: Vec<String> = server.ask(&["LRANGE", "order", "0", "-1"]);
    let turns = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns >= 2, "they were there at the same time: {turns} turns");
}

/// No key is left but fences.
fn nothing_is_left(server: &Server, key: &str) {
    assert_eq!(server.ask::<i32>(&["EXISTS", key, &format!("distlock:queue:{{{key}}}")]), 0);
}

#[test]
fn the_lock_of_redis_py_and_ours_exclude_each_other() {
    let Some(client) = client(&Tool::Libraries, "redis_py.py") else { return };
    let server = Server::start();
    side_by_side(&server, || client(&server, &[]), ["lock k 3"; 2]);
    nothing_is_left(&server, "k");
}

#[test]
fn python_redis_lock_and_our_lock_exclude_each_other() {
    let Some(client) = client(&Tool::Libraries, "python_redis_lock.py") else { return };
    let server = Server::start();
    // One that waits for ours looks once a second, so ours must be away for much of the time.
    side_by_side(&server, || client(&server, &[]), ["lock lock:k 100"; 2]);
    nothing_is_left(&server, "lock:k");
}

#[test]
fn redlock_for_node_and_our_lock_exclude_each_other() {
    let Some(client) = client(&Tool::Node, "redlock.js") else { return };
    let server = Server::start();
    side_by_side(&server, || client(&server, &[]), ["lock k 3"; 2]);
    nothing_is_left(&server, "k");
}

#[test]
fn an_old_client_of_the_timestamp_protocol_and_our_lock_exclude_each_other() {
    let Some(client) = client(&Tool::Python, "legacy.py") else { return };
    for unit in ["ms", "s"] {
        let server = Server::start();
        side_by_side(&server, || client(&server, &["30000", unit, "0"]), ["lock k 3"; 2]);
        nothing_is_left(&server, "k");
    }
}

#[test]
fn old_clients_and_timestamp_locks_take_turns_and_take_what_either_left_behind() {
    let Some(client) = client(&Tool::Python, "legacy.py") else { return };
    let (ttl, crashes) = (TTL.as_millis().to_string(), CRASHES.to_string());
    for (unit, ours) in [("ms", ["stamp ms 1", "stamp ms 2"]), ("s", ["stamp s -", "stamp s -"])] {
        let server = Server::start();
        side_by_side(&server, || client(&server, &[&ttl, unit, &crashes]), ours);
    }
}
