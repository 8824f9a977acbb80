//! What a fork leaves to the child: copies that must do nothing there, and the sleep of threads that it has not.

use std::{fs, mem, process, sync::Arc, thread, time::Duration};

use distlock::{DistLock, ErrorKind, LockClient, LockManager, LockOptions, TimestampLock};

use crate::support::{Server, eventually, workers};

#[test]
fn what_a_forked_child_inherits_is_inert_there() {
    let server = Server::start();
    workers::ends_well(workers::start("fork", &server), Duration::from_secs(20));
}

/// What the child must not trip over is where the memory of a thread that slept is that of a new thread now:
/// so there is one chance a process.
#[test]
fn a_client_that_a_forked_child_opens_works_whoever_slept_when_it_was_forked() {
    let server = Server::start();
    for task in ["fork while all sleep"; 8].into_iter().chain(["fork"; 24]) {
        workers::ends_well(workers::start(task, &server), Duration::from_secs(20));
        let _: () = server.ask(&["FLUSHALL"]);
    }
}

/// Threads of this client sleep wherever they may for long: behind a lock of another client and behind one
/// of their own, at a hold that is lost, and in the background.
fn sleep_everywhere(client: &LockClient, url: &str) {
    let other = LockClient::open(url).unwrap();
    mem::forget(DistLock::new(&other, "theirs").lock().unwrap());
    let told = LockOptions::new().on_lost(|_| {});
    let watched = Arc::new(DistLock::with_options(client, "ours", &told).unwrap().lock().unwrap());
    for _ in 0..4 {
        let (watched, [ours, theirs]) = (Arc::clone(&watched), ["ours", "theirs"].map(|k| DistLock::new(client, k)));
        thread::spawn(move || watched.wait_lost_for(Duration::MAX));
        thread::spawn(move || mem::forget(ours.lock()));
        thread::spawn(move || mem::forget(theirs.lock()));
    }
    let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
    eventually(Duration::from_secs(10), "somebody queues and listens", || {
        let queued: bool = redis::cmd("EXISTS").arg("distlock:queue:{theirs}").query(&mut redis).unwrap();
        let heard: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut redis).unwrap();
        queued && !heard.is_empty()
    });
}

/// One that was in the middle of something would leave the child a mutex that is locked for ever, be it of
/// the allocator, of parking_lot or of ours.
fn others_sleep() -> bool {
    let me = fs::read_link("/proc/thread-self").unwrap();
    fs::read_dir("/proc/self/task").unwrap().all(|task| {
        let task = task.unwrap();
        // After the name, which may be any text in brackets.
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        Some(&*task.file_name()) == me.file_name() || stat.rsplit(')').next().is_none_or(|rest| rest.starts_with(" S"))
    })
}

/// Threads of a client of this process's own lock, wait and hand over.
fn take_turns(url: &str) {
    let client = LockClient::open(url).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    DistLock::new(&client, "turns").lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
}

pub(crate) fn fork(url: &str) {
    fork_with(LockClient::open(url).unwrap(), url);
}

pub(crate) fn fork_while_all_sleep(url: &str) {
    let client = LockClient::open(url).unwrap();
    sleep_everywhere(&client, url);
    fork_with(client, url);
}

fn fork_with(client: LockClient, url: &str) {
    let lock = DistLock::new(&client, "forked");
    let guard = lock.lock().unwrap();
    let stamps = TimestampLock::new(&client, "stamped");
    let stamp = stamps.lock().unwrap();
    let manager = LockManager::new();
    manager.add("forked", &client).unwrap();
    eventually(Duration::from_secs(10), "the other threads sleep", others_sleep);
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
                assert!(!stamp.is_valid() && stamp.remaining().is_zero());
                assert_eq!(stamps.try_lock().unwrap_err().kind(), ErrorKind::InvalidOption);
                assert_eq!(manager.client("forked").unwrap_err().kind(), ErrorKind::InvalidOption);
                assert_eq!(manager.add("own", &client).unwrap_err().kind(), ErrorKind::InvalidOption);
                // A client of its own works, and finds the lock taken.
                let own = DistLock::new(&LockClient::open(url).unwrap(), "forked");
                assert!(own.try_lock().unwrap_err().is_taken());
                take_turns(url);
            };
            let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inert)).is_ok();
            drop((guard, stamp, stamps, manager, lock, client));
            process::exit(if well { 0 } else { 1 });
        }
        fork::Fork::Parent(child) => {
            assert_eq!(fork::waitpid(child).unwrap(), 0, "the child is well");
            assert!(guard.is_valid());
            stamp.unlock().expect("the child has released nothing");
            assert_eq!(lock.holder().unwrap().unwrap().token, guard.token());
            guard.unlock().unwrap();
        }
    }
}
