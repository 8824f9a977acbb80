//! Leases that go from thread to thread of one process without a word to Redis.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, ErrorKind, LockOptions, Renew};

use super::{LONG, assert_kind, assert_taken, ms, takes};
use crate::support::ways::{Way, every_server, every_way};

const THREADS: u64 = 4;

/// The fences of `each` sections of every one of some threads, in their order; and the script calls that
/// they took.
fn sections(way: &Way, options: &LockOptions, each: u64, section: impl Fn() + Sync) -> (Vec<u64>, u64) {
    let lock = way.lock("k", options);
    lock.lock().unwrap().unlock().unwrap();
    let fences: Mutex<Vec<u64>> = Mutex::default();
    let before = way.script_calls();
    thread::scope(|scope| {
        // All of them wait when the first one begins.
        let first = lock.lock().unwrap();
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..each {
                    let guard = lock.lock().unwrap();
                    fences.lock().unwrap().push(guard.fence());
                    section();
                    guard.unlock().unwrap();
                }
            });
        }
        thread::sleep(ms(50));
        first.unlock().unwrap();
    });
    (fences.into_inner().unwrap(), way.script_calls() - before)
}

#[test]
fn a_lease_is_passed_on_sixteen_times_for_two_calls() {
    every_server(|way| {
        let (fences, calls) = sections(way, &LockOptions::new(), 100, || {});
        assert_eq!(fences.len(), 400);
        assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
        let next = fences.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        // The rest began a block; on a busy machine also where a lease was passed on for 50 ms.
        assert!(next > 300, "{next} of 400 have the next fence of a block");
        assert!(fences.chunk_by(|a, b| *b == a + 1).all(|block| block.len() <= 17));
        assert!(calls <= 2 * (400 - next as u64) + 4, "{calls} calls for {} leases", 400 - next);
    });
}

#[test]
fn no_passes_are_no_passes() {
    every_server(|way| {
        for options in [LockOptions::new().local_passes(0), LockOptions::new().renew(Renew::Never)] {
            let (fences, calls) = sections(way, &options, 10, || {});
            assert_eq!(calls, 2 * (fences.len() as u64 + 1));
            assert!(fences.windows(2).all(|pair| pair[1] >= pair[0] + 17), "{fences:?}");
        }
        let (fences, _) = sections(way, &LockOptions::new().local_passes(1), 10, || {});
        assert!(fences.chunk_by(|a, b| *b == a + 1).all(|block| block.len() <= 2), "{fences:?}");
    });
}

#[test]
fn a_lease_is_passed_on_for_fifty_milliseconds_at_most() {
    every_server(|way| {
        let (fences, _) = sections(way, &LockOptions::new(), 3, || thread::sleep(ms(30)));
        // Begun at 0 and 30 ms, and perhaps, on the way, at 60 ms, but not at 90.
        assert!(fences.chunk_by(|a, b| *b == a + 1).all(|block| block.len() <= 3), "{fences:?}");
    });
}

#[test]
fn a_lease_that_was_passed_on_is_renewed_and_told_of_as_its_own() {
    every_way(|way| {
        let client = way.client();
        let told = Arc::new(Mutex::new(Vec::new()));
        let listening = |name: &'static str| {
            let told = Arc::clone(&told);
            let options =
                LockOptions::new().ttl(ms(600)).on_lost(move |lost| told.lock().unwrap().push((name, lost.fence)));
            DistLock::with_options(&client, "k", &options).unwrap()
        };
        let (first, second) = (listening("first"), listening("second"));
        // Connecting, with TLS above all, takes its part of the time in which a lease is passed on.
        first.lock().unwrap().unlock().unwrap();
        let guard = first.lock().unwrap();
        let fence = guard.fence();
        let heir = thread::scope(|scope| {
            let heir = scope.spawn(|| second.lock().unwrap());
            thread::sleep(ms(20));
            guard.unlock().unwrap();
            heir.join().unwrap()
        });
        assert_eq!(heir.fence(), fence + 1);
        assert!(!heir.wait_lost_for(ms(1500)), "renewed");
        way.ask::<()>(&["DEL", "k"]);
        assert!(heir.wait_lost_for(LONG));
        crate::support::eventually(LONG, "told", || !told.lock().unwrap().is_empty());
        assert_eq!(*told.lock().unwrap(), [("second", fence + 1)]);
        assert_kind(heir.unlock(), ErrorKind::Lost);
    });
}

#[test]
fn a_lease_that_is_lost_or_nearly_over_is_not_passed_on() {
    every_way(|way| {
        for lost in [true, false] {
            let options = LockOptions::new().ttl(ms(1000)).renew(Renew::AtMost(ms(1000)));
            let lock = way.lock("k", &options);
            let guard = lock.lock().unwrap();
            let fence = guard.fence();
            thread::scope(|scope| {
                let heir = scope.spawn(|| lock.try_lock_for(LONG).unwrap());
                thread::sleep(ms(10));
                if lost {
                    way.ask::<()>(&["DEL", "k"]);
                    assert_kind(guard.extend(Duration::ZERO), ErrorKind::Lost);
                    assert_kind(guard.unlock(), ErrorKind::Lost);
                } else {
                    assert!(!guard.wait_lost_for(guard.remaining() - ms(200)));
                    guard.unlock().unwrap();
                }
                let heir = heir.join().unwrap();
                assert!(heir.fence() >= fence + 17, "a lease of its own: {} after {fence}", heir.fence());
                assert!(heir.remaining() > ms(600), "{:?}", heir.remaining());
            });
        }
    });
}

#[test]
fn a_guard_that_is_passed_the_lease_is_released_like_any_other() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new());
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let heir = scope.spawn(|| lock.lock().unwrap());
            thread::sleep(ms(20));
            drop(guard);
            let heir = heir.join().unwrap();
            assert_eq!(way.value("k").as_deref(), Some(heir.token()));
            assert_taken(lock.try_lock());
            assert_taken(way.lock("k", &LockOptions::new()).try_lock());
            heir.unlock().unwrap();
        });
        assert_eq!(way.value("k"), None);
        assert!(way.left_over().is_empty());
    });
}

#[test]
fn a_process_that_always_wants_the_lock_lets_another_have_its_turn() {
    every_server(|way| {
        if !way.waits_in_turn() {
            return;
        }
        let stop = Instant::now() + ms(1500);
        let (busy, other) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while Instant::now() < stop {
                        let guard = busy.lock().unwrap();
                        thread::sleep(ms(1));
                        guard.unlock().unwrap();
                    }
                });
            }
            let start = Instant::now();
            drop(takes(Duration::ZERO, || other.try_lock_for(LONG)).unwrap());
            assert!(start.elapsed() < ms(1400), "only when nobody else wanted it: {:?}", start.elapsed());
        });
    });
}

#[test]
fn a_try_behind_a_guard_of_another_lock_of_this_client_asks_nobody() {
    every_server(|way| {
        let client = way.client();
        let (one, other) = (LockOptions::new(), LockOptions::new().label("other"));
        let lock = |options| DistLock::with_options(&client, "k", options).unwrap();
        let guard = lock(&one).lock().unwrap();
        // The server knows the script from here on.
        guard.extend(Duration::ZERO).unwrap();
        let before = way.script_calls();
        assert_taken(lock(&other).try_lock());
        let token = guard.into_token().unwrap();
        let guard = lock(&other).resume(&token).unwrap();
        let resumed = way.script_calls();
        assert_eq!(resumed - before, 2, "extended, and resumed");
        assert_taken(lock(&one).try_lock());
        assert_eq!(way.script_calls(), resumed);
        drop(guard);
        assert!(lock(&one).try_lock().is_ok());
    });
}
