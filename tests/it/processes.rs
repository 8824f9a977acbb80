//! Many processes on one key, and processes that end badly.

mod forked;

use std::{
    process, thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, ErrorKind, LockClient, LockOptions, Renew};
use redis::Commands;

use crate::support::proxy::{TRY, calls};
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually, workers};

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
        "fork" => forked::fork(&url),
        "fork while all sleep" => forked::fork_while_all_sleep(&url),
        "hold and look" => hold_and_look(&url),
        "lock and look" => lock_and_look(&url),
        "many locks" => crate::keeping::many_locks(&url),
        "wear" => crate::load::wear(&url),
        "wait" => crate::turns::wait(&url),
        "fork while waiting" => crate::turns::fork_while_waiting(&url),
        "panicking logger" => crate::faults::panicking_logger(&url),
        other => match other.strip_prefix("contend ") {
            Some(orders) => crate::faults::contender::contend(orders, &url),
            None => match other.strip_prefix("beside ") {
                Some(what) => crate::interop::count(what, &url),
                None => panic!("no such task: {other}"),
            },
        },
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

/// A guard in hand is good, whatever happened to this process while it waited for it.
fn lock_and_look(url: &str) {
    let options = LockOptions::new().ttl(TTL).renew(Renew::Never);
    let lock = DistLock::with_options(&LockClient::open(url).unwrap(), "held", &options).unwrap();
    let guard = lock.lock().unwrap();
    assert!(guard.is_valid(), "a lock whose lease was over is no lock");
    guard.unlock().unwrap();
}

#[test]
fn a_process_that_is_stopped_while_a_grant_is_on_its_way_ends_up_with_a_good_guard() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    proxy.rule(Way::Reply, Fate::Hold, 1, calls(TRY));
    let child = workers::start_at("lock and look", &proxy.url());
    eventually(Duration::from_secs(10), "the grant is on its way", || proxy.held() > 0);
    workers::signal(&child, "STOP");
    proxy.release();
    thread::sleep(TTL + Duration::from_millis(100));
    workers::signal(&child, "CONT");
    workers::ends_well(child, Duration::from_secs(20));
    eventually(Duration::from_secs(5), "nothing is left", || server.ask::<i64>(&["EXISTS", "held"]) == 0);
}

#[test]
fn a_holder_that_was_stopped_beyond_its_ttl_knows_it_when_it_wakes() {
    let server = Server::start();
    let child = workers::start_at("hold and look", &server.url());
    eventually(Duration::from_secs(10), "it holds", || server.ask::<i64>(&["EXISTS", "held"]) == 1);
    workers::signal(&child, "STOP");
    let next = DistLock::new(&LockClient::open(server.url()).unwrap(), "held");
    let next = next.try_lock_for(Duration::from_secs(10)).unwrap();
    workers::signal(&child, "CONT");
    workers::ends_well(child, Duration::from_secs(20));
    assert_eq!(server.ask::<String>(&["GET", "held"]), next.token(), "it released nothing");
    next.unlock().unwrap();
}

/// Holds until it is lost, which is for a reason outside.
fn hold_and_look(url: &str) {
    let options = LockOptions::new().ttl(TTL);
    let lock = DistLock::with_options(&LockClient::open(url).unwrap(), "held", &options).unwrap();
    let guard = lock.lock().unwrap();
    assert!(guard.wait_lost_for(Duration::from_secs(20)));
    assert!(!guard.is_valid());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
}
