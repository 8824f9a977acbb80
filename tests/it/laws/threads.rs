//! The threads of one client among themselves.

use std::{
    sync::{Mutex, mpsc},
    thread,
    time::Duration,
};

use distlock::{DistLock, LockOptions};

use super::{BOUND, LONG, ms, once, takes};
use crate::support::{
    eventually,
    ways::{every_server, every_way},
};

/// Where the calling thread can be looked at: `/proc/<pid>/task/<tid>/stat`.
fn own_stat() -> String {
    let path = std::fs::read_link("/proc/thread-self").expect("a Linux with /proc");
    format!("/proc/{}/stat", path.display())
}

/// Does the thread sleep? Its state is the first field after its name.
fn is_asleep(stat: &str) -> bool {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}

#[test]
fn threads_get_the_lock_in_the_order_in_which_they_asked() {
    every_way(|way| {
        let (lock, order) = (way.lock("k", &LockOptions::new()), Mutex::new(Vec::new()));
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let (lock, order) = (&lock, &order);
            for i in 0..6 {
                let (tell, told) = mpsc::channel();
                scope.spawn(move || {
                    tell.send(own_stat()).unwrap();
                    let _guard = lock.lock().unwrap();
                    order.lock().unwrap().push(i);
                });
                let stat = told.recv().unwrap();
                // It asks nobody while this client holds the key: where it sleeps is the queue.
                eventually(LONG, "the thread waits", || is_asleep(&stat));
            }
            guard.unlock().unwrap();
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
    });
}

#[test]
fn only_one_thread_of_a_client_asks_redis() {
    every_server(|way| {
        let guard = way.lock("k", &LockOptions::new()).lock().unwrap();
        let lock = way.lock("k", &LockOptions::new());
        let calls = |threads: usize| {
            let before = way.script_calls();
            thread::scope(|scope| {
                (0..threads).for_each(|_| drop(scope.spawn(|| lock.try_lock_for(ms(400)).map(drop))));
            });
            way.script_calls() - before
        };
        calls(1);
        let many = calls(16);
        // Pauses of 2 to 50 ms in 400 ms, and a last attempt; each thread of its own would be hundreds.
        assert!(many < 120, "{many} calls");
        drop(guard);
    });
}

#[test]
fn a_leaked_guard_does_not_block_its_own_process_longer_than_its_ttl() {
    every_way(|way| {
        let client = way.client();
        let lock = DistLock::with_options(&client, "k", &once(ms(300))).unwrap();
        std::mem::forget(lock.lock().unwrap());
        drop(takes(Duration::ZERO, || lock.try_lock_for(ms(300) + BOUND)).unwrap());
        // Also one with other options, which waits at a gate of its own.
        std::mem::forget(lock.lock().unwrap());
        let other = DistLock::new(&client, "k");
        drop(takes(Duration::ZERO, || other.try_lock_for(ms(300) + BOUND)).unwrap());
    });
}

#[test]
fn a_lost_guard_makes_room_for_the_next_thread_while_it_lives() {
    every_way(|way| {
        let client = way.client();
        let lock = DistLock::with_options(&client, "k", &LockOptions::new().ttl(ms(600))).unwrap();
        let guard = lock.lock().unwrap();
        way.ask::<()>(&["DEL", "k"]);
        // The watchdog finds out within ttl/3, and the lease would last for longer.
        let next = takes(Duration::ZERO, || lock.try_lock_for(LONG)).unwrap();
        assert!(!guard.is_valid());
        drop(guard);
        assert_eq!(way.value("k").as_deref(), Some(next.token()));
        next.unlock().unwrap();
    });
}
