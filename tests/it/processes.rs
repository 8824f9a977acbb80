//! Many processes on one key, and processes that end badly.

use std::{
    process, thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, ErrorKind, LockClient, LockOptions};
use redis::Commands;

use crate::support::{SLACK, Server, eventually, workers};

const PROCESSES: usize = 16;
const THREADS: usize = 4;
const ROUNDS: usize = 500;
const TTL: Duration = Duration::from_millis(800);

/// Not a test: what a worker process runs.
#[test]
#[ignore = "run by the tests below, in processes of its own"]
fn worker() {
    let Some((task, url)) = workers::task() else { return };
    match task.as_str() {
        "count" => count(&url),
        "hold" => hold(&url, || {
            loop {
                thread::park();
            }
        }),
        "exit while holding" => hold(&url, || process::exit(0)),
        "fork" => fork(&url),
        "many locks" => crate::keeping::many_locks(&url),
        other => panic!("no such task: {other}"),
    }
}

/// Reads a number, waits for nobody, writes it back one higher: only the lock makes that right.
fn count(url: &str) {
    let client = LockClient::open(url).unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let lock = DistLock::new(&client, "counter lock");
            scope.spawn(move || {
                let mut store = redis::Client::open(url).unwrap().get_connection().unwrap();
                for _ in 0..ROUNDS {
                    let guard = lock.lock().unwrap();
                    let alone: bool = store.set_nx("inside", process::id()).unwrap();
                    assert!(alone, "somebody else is in");
                    let n: u64 = store.get::<_, Option<u64>>("counter").unwrap().unwrap_or(0);
                    let last: u64 = store.get::<_, Option<u64>>("fence").unwrap().unwrap_or(0);
                    assert!(last < guard.fence(), "fences in the order of the holds");
                    redis::pipe()
                        .set("counter", n + 1)
                        .set("fence", guard.fence())
                        .del("inside")
                        .exec(&mut store)
                        .unwrap();
                    guard.unlock().unwrap();
                }
            });
        }
    });
}

#[test]
fn sixteen_processes_with_four_threads_each_never_overlap() {
    let server = Server::start();
    let children: Vec<_> = (0..PROCESSES).map(|_| workers::start("count", &server)).collect();
    for child in children {
        workers::ends_well(child, Duration::from_secs(300));
    }
    assert_eq!(server.ask::<usize>(&["GET", "counter"]), PROCESSES * THREADS * ROUNDS);
    let mut left: Vec<String> = server.ask(&["KEYS", "*lock*"]);
    left.sort();
    assert_eq!(left, ["distlock:fence:{counter lock}"]);
}

fn hold(url: &str, then: impl FnOnce()) {
    let options = LockOptions::new().ttl(TTL);
    let lock = DistLock::with_options(&LockClient::open(url).unwrap(), "held", &options).unwrap();
    let _guard = lock.lock().unwrap();
    then();
}

#[test]
fn a_holder_that_is_killed_blocks_others_for_no_longer_than_its_ttl() {
    let server = Server::start();
    let lock = DistLock::new(&LockClient::open(server.url()).unwrap(), "held");
    let mut child = workers::start("hold", &server);
    eventually(Duration::from_secs(10), "it holds", || lock.is_locked().unwrap());
    // For as long as it lives, it holds.
    assert!(lock.try_lock_for(2 * TTL).unwrap_err().is_taken());
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    drop(lock.try_lock_for(Duration::from_secs(10)).unwrap());
    assert!(start.elapsed() < TTL + SLACK, "{:?}", start.elapsed());
}

#[test]
fn a_holder_that_exits_without_a_drop_blocks_others_for_no_longer_than_its_ttl() {
    let server = Server::start();
    let lock = DistLock::new(&LockClient::open(server.url()).unwrap(), "held");
    workers::ends_well(workers::start("exit while holding", &server), Duration::from_secs(20));
    let start = Instant::now();
    drop(lock.try_lock_for(Duration::from_secs(10)).unwrap());
    assert!(start.elapsed() < TTL + SLACK, "{:?}", start.elapsed());
}

#[test]
fn what_a_forked_child_inherits_is_inert_there() {
    let server = Server::start();
    workers::ends_well(workers::start("fork", &server), Duration::from_secs(20));
}

fn fork(url: &str) {
    let client = LockClient::open(url).unwrap();
    let lock = DistLock::new(&client, "forked");
    let guard = lock.lock().unwrap();
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let inert = || {
                assert!(
                    !guard.is_valid() && guard.remaining().is_zero() && guard.wait_lost_for(Duration::from_secs(9))
                );
                assert_eq!(guard.extend(Duration::ZERO).unwrap_err().kind(), ErrorKind::InvalidOption);
                assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::InvalidOption);
                assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::InvalidOption);
                assert_eq!(client.ping().unwrap_err().kind(), ErrorKind::InvalidOption);
                assert_eq!(DistLock::new(&client, "other").try_lock().unwrap_err().kind(), ErrorKind::InvalidOption);
                // A client of its own works, and finds the lock taken.
                let own = DistLock::new(&LockClient::open(url).unwrap(), "forked");
                assert!(own.try_lock().unwrap_err().is_taken());
            };
            let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inert)).is_ok();
            drop((guard, lock, client));
            process::exit(if well { 0 } else { 1 });
        }
        fork::Fork::Parent(child) => {
            assert_eq!(fork::waitpid(child).unwrap(), 0, "the child is well");
            assert!(guard.is_valid());
            assert_eq!(lock.holder().unwrap().unwrap().token, guard.token());
            guard.unlock().unwrap();
        }
    }
}
