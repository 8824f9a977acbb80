//! Keeping locks for long, and many of them.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use distlock::{DistLock, DistLockGuard, LockClient, LockOptions, Renew};

use crate::support::ways::script_calls;
use crate::support::{Server, eventually, workers};

fn lock(client: &LockClient, key: &str, ttl: Duration) -> DistLock {
    DistLock::with_options(client, key, &LockOptions::new().ttl(ttl)).unwrap()
}

#[test]
fn a_lock_held_twenty_times_its_ttl_is_never_lost() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let ttl = Duration::from_secs(1);
    let guard = lock(&client, "k", ttl).lock().unwrap();
    let token = guard.token().to_owned();
    let end = Instant::now() + 20 * ttl;
    while Instant::now() < end {
        assert!(!guard.wait_lost_for(ttl / 4), "lost {:?} before the end", end - Instant::now());
        assert_eq!(server.ask::<String>(&["GET", "k"]), token);
    }
    guard.unlock().unwrap();
}

#[test]
fn two_thousand_locks_are_renewed_by_one_thread_and_none_is_lost() {
    let server = Server::start();
    // In a process of its own, whose threads are its own.
    workers::ends_well(workers::start("many locks", &server), Duration::from_secs(60));
}

pub(crate) fn many_locks(url: &str) {
    let client = LockClient::open(url).unwrap();
    let ttl = Duration::from_secs(2);
    let guards: Vec<_> = (0..2000).map(|i| lock(&client, &format!("k{i}"), ttl).lock().unwrap()).collect();
    let end = Instant::now() + 3 * ttl;
    while Instant::now() < end {
        std::thread::sleep(ttl / 8);
        let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
        assert_eq!(lost, 0, "{:?} before the end", end - Instant::now());
    }
    assert_eq!(threads("distlock-dog"), 1);
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    drop(client);
    eventually(Duration::from_secs(5), "the thread ends with its client", || threads("distlock-dog") == 0);
}

/// Threads of this process whose name begins so.
pub(crate) fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .filter(|comm| comm.starts_with(name))
        .count()
}

#[test]
fn locks_of_very_different_ttls_are_kept_side_by_side() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let ttls = [100, 150, 300, 1000, 30_000].map(Duration::from_millis);
    let guards: Vec<_> =
        (0..100).map(|i| lock(&client, &format!("k{i}"), ttls[i % ttls.len()]).lock().unwrap()).collect();
    std::thread::sleep(Duration::from_secs(2));
    assert!(guards.iter().all(DistLockGuard::is_valid));
}

#[test]
fn a_new_acquisition_after_a_loss_is_renewed_again() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let ttl = Duration::from_millis(300);
    let lock = lock(&client, "k", ttl);
    for _ in 0..3 {
        let guard = lock.lock().unwrap();
        assert!(!guard.wait_lost_for(2 * ttl));
        let _: () = server.ask(&["DEL", "k"]);
        assert!(guard.wait_lost_for(Duration::from_secs(5)));
    }
}

#[test]
fn nothing_stands_in_redis_after_a_mixed_run_but_fences_with_a_ttl() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..60 {
                    let key = format!("k{}", (thread + round) % 4);
                    let lock = lock(client, &key, Duration::from_secs(1));
                    match round % 4 {
                        0 => drop(lock.lock()),
                        1 => drop(lock.try_lock()),
                        2 => drop(lock.try_lock_for(Duration::from_millis(3))),
                        _ => drop(lock.force_unlock()),
                    }
                }
            });
        }
    });
    let keys: Vec<String> = server.ask(&["KEYS", "*"]);
    for key in keys {
        assert!(key.starts_with("distlock:fence:"), "{key}");
        assert!(server.ask::<i64>(&["PTTL", &key]) > 0, "{key} has no ttl");
    }
}

/// Script calls that the server has executed.
fn calls(server: &Server) -> u64 {
    script_calls(&server.ask::<String>(&["INFO", "commandstats"]))
}

#[test]
fn no_renewal_is_left_behind_by_holds_that_were_too_short_for_one() {
    let server = Server::start();
    let lock = lock(&LockClient::open(server.url()).unwrap(), "k", Duration::from_millis(600));
    for _ in 0..20 {
        lock.lock().unwrap().unlock().unwrap();
    }
    let before = calls(&server);
    // The first would be due at a third of the ttl.
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(calls(&server), before);
}

#[test]
fn what_is_not_to_be_renewed_makes_no_call() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let options = LockOptions::new().ttl(Duration::from_millis(300)).renew(Renew::Never);
    let guard = DistLock::with_options(&client, "k", &options).unwrap().lock().unwrap();
    let before = calls(&server);
    assert!(guard.wait_lost_for(Duration::from_secs(5)));
    assert_eq!(calls(&server), before);
}

#[test]
fn a_guard_that_is_gone_leaves_nothing_in_its_client_until_its_renewal_would_be_due() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let (ttl, captured) = (Duration::from_secs(60), Arc::new(()));
    let left = Arc::downgrade(&captured);
    let told = LockOptions::new().ttl(ttl).on_lost(move |_| drop(Arc::clone(&captured)));
    let guard = || DistLock::with_options(&client, "k", &told).unwrap().lock().unwrap();
    guard().unlock().unwrap();
    drop(guard());
    let _ = guard().into_token().unwrap();
    drop(told);
    eventually(Duration::from_secs(5), "nothing holds the callback", || left.upgrade().is_none());
}
