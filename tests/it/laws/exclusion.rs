//! One holder at a time; the key is the holder's token, so that foreign clients are excluded and
//! exclude; every way of ending a hold frees it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use distlock::{Backoff, DistLock, ErrorKind, LockOptions};

use super::{BOUND, LONG, assert_kind, assert_taken, ms, once, takes};
use crate::support::{eventually, ways::every_way};

/// A counter that loses updates unless something orders them.
fn increment(counter: &AtomicU64) {
    let before = counter.load(Relaxed);
    thread::yield_now();
    counter.store(before + 1, Relaxed);
}

const QUICK: LockOptions = LockOptions::new().backoff(Backoff::new().cap(ms(5)));

#[test]
fn threads_of_one_client_exclude_each_other() {
    every_way(|way| {
        let (counter, lock) = (AtomicU64::new(0), way.lock("counter", &QUICK));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| with(&lock, || increment(&counter))));
            }
        });
        assert_eq!(counter.into_inner(), 200);
    });
}

fn with(lock: &DistLock, section: impl FnOnce()) {
    let guard = lock.lock().unwrap();
    section();
    guard.unlock().unwrap();
}

#[test]
fn two_clients_exclude_each_other() {
    every_way(|way| {
        let (counter, mine, yours) = (AtomicU64::new(0), way.lock("counter", &QUICK), way.lock("counter", &QUICK));
        thread::scope(|scope| {
            for lock in [&mine, &yours, &mine, &yours] {
                scope.spawn(|| (0..25).for_each(|_| with(lock, || increment(&counter))));
            }
        });
        assert_eq!(counter.into_inner(), 100);
    });
}

#[test]
fn two_locks_of_one_client_with_other_options_exclude_each_other() {
    every_way(|way| {
        let client = way.client();
        let one = DistLock::new(&client, "k");
        let other = DistLock::with_options(&client, "k", &once(ms(5000)).label("other")).unwrap();
        let guard = one.lock().unwrap();
        assert_taken(other.try_lock());
        drop(guard);
        assert!(other.try_lock().is_ok());
    });
}

#[test]
fn dropping_or_unlocking_releases_at_once() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        drop(mine.lock().unwrap());
        assert_eq!(way.value("k"), None);
        yours.try_lock().unwrap().unlock().unwrap();
        assert_eq!(way.value("k"), None);
        assert!(mine.try_lock().is_ok());
    });
}

#[test]
fn a_taken_lock_is_refused_until_it_is_free() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        let guard = mine.try_lock().unwrap();
        assert_taken(takes(Duration::ZERO, || yours.try_lock()));
        assert_taken(takes(Duration::ZERO, || mine.try_lock()));
        drop(guard);
        drop(yours.try_lock().unwrap());
        assert!(mine.try_lock().is_ok());
    });
}

#[test]
fn the_value_of_the_key_is_the_token_and_has_the_ttl() {
    every_way(|way| {
        let guard = way.lock("k", &once(ms(5000))).lock().unwrap();
        assert_eq!(way.value("k").as_deref(), Some(guard.token()));
        let pttl: i64 = way.ask(&["PTTL", "k"]);
        assert!((3000..=5000).contains(&pttl), "{pttl}");
    });
}

#[test]
fn tokens_are_never_used_again() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        let mut tokens: Vec<String> =
            (0..10).flat_map(|_| [&mine, &yours].map(|lock| lock.lock().unwrap().token().to_owned())).collect();
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), 20);
    });
}

#[test]
fn a_foreign_holder_excludes_us_and_its_compare_and_delete_frees_us() {
    const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new());
        way.ask::<()>(&["SET", "k", "theirs", "NX", "PX", "20000"]);
        assert_taken(lock.try_lock());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(LONG).map(|guard| guard.token().to_owned()));
            // Somebody else's token deletes nothing.
            assert_eq!(way.ask::<i64>(&["EVAL", DELETE, "1", "k", "another's"]), 0);
            thread::sleep(ms(30));
            assert!(!waiter.is_finished());
            assert_eq!(way.ask::<i64>(&["EVAL", DELETE, "1", "k", "theirs"]), 1);
            let token = takes(Duration::ZERO, || waiter.join().unwrap()).unwrap();
            assert_ne!(token, "theirs");
        });
        // And ours excludes them.
        let guard = lock.lock().unwrap();
        assert_eq!(way.ask::<Option<String>>(&["SET", "k", "theirs", "NX", "PX", "20000"]), None);
        assert_eq!(way.ask::<i64>(&["EVAL", DELETE, "1", "k", "theirs"]), 0);
        guard.unlock().unwrap();
    });
}

#[test]
fn a_foreign_holder_without_a_ttl_is_waited_for() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new());
        way.ask::<()>(&["SET", "k", "theirs"]);
        assert_taken(lock.try_lock());
        assert_taken(takes(ms(150), || lock.try_lock_for(ms(150))));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.lock().map(drop));
            thread::sleep(ms(30));
            assert!(!waiter.is_finished());
            way.ask::<()>(&["DEL", "k"]);
            takes(Duration::ZERO, || waiter.join().unwrap()).unwrap();
        });
    });
}

#[test]
fn a_guard_may_be_dropped_in_another_thread() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new());
        let guard = lock.lock().unwrap();
        thread::spawn(move || drop(guard)).join().unwrap();
        assert_eq!(way.value("k"), None);
        assert!(lock.try_lock().is_ok());
    });
}

#[test]
fn a_panic_releases_and_stays_the_panic_that_it_was() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new());
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _guard = lock.lock().unwrap();
            std::panic::resume_unwind(Box::new("the user's own"));
        }));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"the user's own"));
        assert_eq!(way.value("k"), None);
        assert!(lock.try_lock().is_ok(), "no poisoning");
    });
}

#[test]
fn unlocking_after_the_key_was_deleted_says_lost() {
    every_way(|way| {
        let guard = way.lock("k", &LockOptions::new()).lock().unwrap();
        way.ask::<()>(&["DEL", "k"]);
        assert_kind(guard.unlock(), ErrorKind::Lost);
    });
}

#[test]
fn unlocking_after_the_key_was_overwritten_says_lost_and_leaves_it() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new());
        let guard = lock.lock().unwrap();
        way.ask::<()>(&["SET", "k", "theirs"]);
        assert_kind(guard.unlock(), ErrorKind::Lost);
        assert_eq!(way.value("k").as_deref(), Some("theirs"));
        way.ask::<()>(&["DEL", "k"]);
        drop(lock.lock().unwrap());
        // Dropping, too, ends nobody else's hold.
        let guard = lock.lock().unwrap();
        way.ask::<()>(&["SET", "k", "theirs"]);
        drop(guard);
        assert_eq!(way.value("k").as_deref(), Some("theirs"));
    });
}

#[test]
fn locks_and_guards_live_on_without_their_client() {
    every_way(|way| {
        let client = way.client();
        let lock = DistLock::with_options(&client, "k", &LockOptions::new().ttl(ms(400))).unwrap();
        drop(client);
        let guard = lock.lock().unwrap();
        drop(lock);
        assert!(!guard.wait_lost_for(ms(800)), "renewed");
        guard.unlock().unwrap();
        eventually(BOUND, "nothing is left", || way.left_over().is_empty());
    });
}
