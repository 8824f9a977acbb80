//! One at a time, over threads and clients; fences in order; nothing left.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use distlock::{DistLock, LockClient};

use super::{LONG, lock};
use crate::support::eventually;
use crate::support::ways::{Way, on_every_way};

/// Threads that count without any other synchronisation than the lock.
fn count(way: &Way, clients: &[LockClient], threads: usize, rounds: usize) {
    let (counter, last) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for client in clients {
            for _ in 0..threads {
                let lock = DistLock::new(client, "counter");
                let (counter, last) = (&counter, &last);
                scope.spawn(move || {
                    for _ in 0..rounds {
                        let guard = lock.lock().unwrap();
                        let seen = counter.load(Relaxed);
                        thread::yield_now();
                        counter.store(seen + 1, Relaxed);
                        assert!(last.swap(guard.fence(), Relaxed) < guard.fence(), "fences in the order of the holds");
                        guard.unlock().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(counter.into_inner() as usize, clients.len() * threads * rounds, "{}", way.name);
}

#[test]
fn threads_of_one_client_exclude_each_other() {
    on_every_way(|way| count(way, &[way.client()], 4, 40));
}

#[test]
fn clients_exclude_each_other() {
    on_every_way(|way| count(way, &[way.client(), way.client()], 2, 15));
}

#[test]
fn keys_do_not_exclude_each_other() {
    on_every_way(|way| {
        let client = way.client();
        let guards = ["a", "b", "a:b", "{a}", "A", ""].map(|key| DistLock::new(&client, key).try_lock().unwrap());
        assert!(guards.iter().all(|guard| guard.is_valid()));
    });
}

#[test]
fn a_held_lock_is_taken_for_everybody_else() {
    on_every_way(|way| {
        let client = way.client();
        let guard = DistLock::new(&client, "k").try_lock().unwrap();
        for other in [DistLock::new(&client, "k"), lock(way, "k")] {
            let error = other.try_lock().unwrap_err();
            assert!(error.is_taken(), "{}: {error:?}", way.name);
            assert!(error.to_string().contains("\"k\""), "{error}");
        }
        assert_eq!(way.ask::<String>(&["GET", "k"]), guard.token());
    });
}

#[test]
fn unlock_and_drop_release_and_leave_nothing_but_the_fence() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        let keys = || way.ask::<Vec<String>>(&["KEYS", "*"]);
        lock.lock().unwrap().unlock().unwrap();
        assert_eq!(keys(), ["distlock:fence:{k}"], "{}", way.name);
        drop(lock.lock().unwrap());
        assert_eq!(keys(), ["distlock:fence:{k}"], "{}", way.name);
        assert!(way.ask::<i64>(&["PTTL", "distlock:fence:{k}"]) > 86_000_000);
        assert!(!lock.is_locked().unwrap());
    });
}

#[test]
fn fences_grow_over_clients_flushes_and_expiries() {
    on_every_way(|way| {
        let mut last = 0;
        for round in 0..6 {
            let guard = lock(way, "k").lock().unwrap();
            assert!(guard.fence() > last && guard.fence() < 1 << 53, "{}", way.name);
            last = guard.fence();
            guard.unlock().unwrap();
            let _: () = way.ask(if round % 2 == 0 { &["FLUSHALL"] } else { &["SCRIPT", "FLUSH"] });
        }
    });
}

#[test]
fn a_guard_may_be_dropped_anywhere() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        let guard = lock.lock().unwrap();
        thread::spawn(move || drop(guard)).join().unwrap();
        assert!(lock.try_lock().is_ok(), "{}: in another thread", way.name);
        let guard = lock.lock().unwrap();
        let panicked = thread::spawn(move || {
            let _guard = guard;
            panic!("while it is held");
        });
        assert!(panicked.join().is_err());
        assert!(lock.try_lock().is_ok(), "{}: while unwinding", way.name);
    });
}

#[test]
fn connections_and_threads_end_with_the_client() {
    let server = crate::support::Server::start();
    let clients = || server.ask::<String>(&["CLIENT", "LIST", "TYPE", "normal"]).lines().count();
    let before = clients();
    for _ in 0..3 {
        let client = LockClient::open(server.url()).unwrap();
        let guard = DistLock::new(&client, "k").lock().unwrap();
        drop(client);
        assert!(guard.is_valid(), "a client may go before its guards");
        drop(guard);
    }
    eventually(LONG, "connections are closed", || clients() <= before);
}
