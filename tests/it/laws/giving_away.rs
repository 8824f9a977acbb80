//! A hold goes from guard to guard by its token.

use std::time::Instant;

use distlock::{DistLock, ErrorKind, LockOptions};

use super::{BOUND, LONG, assert_kind, assert_taken, ms, once, outlive};
use crate::support::ways::every_way;

#[test]
fn a_hold_goes_to_another_client_and_stays_held_meanwhile() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        let guard = mine.lock().unwrap();
        let fence = guard.fence();
        let token = guard.into_token().unwrap();
        assert_eq!(way.value("k").as_ref(), Some(&token), "the giver does not release");
        assert_taken(yours.try_lock());
        let guard = yours.resume(&token).unwrap();
        assert_eq!(guard.token(), token);
        assert!(guard.fence() > fence, "a fence of its own");
        assert!(guard.is_valid());
        assert_taken(mine.try_lock());
        guard.unlock().unwrap();
        assert_eq!(way.value("k"), None);
        assert!(mine.try_lock().is_ok());
    });
}

#[test]
fn a_hold_is_taken_back_by_the_client_that_gave_it() {
    every_way(|way| {
        let client = way.client();
        let lock = DistLock::with_options(&client, "k", &LockOptions::new().ttl(ms(600))).unwrap();
        let guard = lock.lock().unwrap();
        let fence = guard.fence();
        let token = guard.into_token().unwrap();
        let guard = lock.resume(&token).unwrap();
        assert!(guard.fence() > fence);
        assert!(!guard.wait_lost_for(ms(1200)), "renewed again");
        guard.unlock().unwrap();
        lock.try_lock().unwrap().unlock().unwrap();
    });
}

#[test]
fn what_is_given_away_gets_the_full_ttl_and_is_not_renewed() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new().ttl(ms(900)));
        let guard = lock.lock().unwrap();
        std::thread::sleep(ms(200));
        let token = guard.into_token().unwrap();
        let pttl: i64 = way.ask(&["PTTL", "k"]);
        assert!(pttl > 500, "{pttl}");
        let start = Instant::now();
        let next = lock.try_lock_for(LONG).unwrap();
        assert!(start.elapsed() > ms(500) && start.elapsed() < ms(900) + BOUND, "{:?}", start.elapsed());
        assert_kind(lock.resume(&token), ErrorKind::Lost);
        assert_eq!(way.value("k").as_deref(), Some(next.token()));
    });
}

#[test]
fn resuming_what_is_not_held_with_the_token_says_lost_and_changes_nothing() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new());
        for token in ["", "unknown", "d0.made-up", "with space\0and nul"] {
            assert_kind(lock.resume(token), ErrorKind::Lost);
            assert_eq!(way.value("k"), None, "{token:?}");
        }
        let guard = lock.lock().unwrap();
        assert_kind(way.lock("k", &LockOptions::new()).resume("unknown"), ErrorKind::Lost);
        assert_eq!(way.value("k").as_deref(), Some(guard.token()));
        guard.unlock().unwrap();
    });
}

#[test]
fn a_lost_guard_has_nothing_to_give_away() {
    every_way(|way| {
        let lock = way.lock("k", &once(ms(100)));
        let guard = lock.lock().unwrap();
        outlive(&guard);
        assert_kind(guard.into_token(), ErrorKind::Lost);
        let guard = way.lock("k", &LockOptions::new()).lock().unwrap();
        way.ask::<()>(&["DEL", "k"]);
        assert_kind(guard.into_token(), ErrorKind::Lost);
        assert_eq!(way.value("k"), None);
    });
}

#[test]
fn resuming_a_hold_whose_guard_lives_loses_that_guard_at_its_next_renewal() {
    every_way(|way| {
        let mine = way.lock("k", &LockOptions::new().ttl(ms(3000)));
        let old = mine.lock().unwrap();
        let new = way.lock("k", &LockOptions::new()).resume(old.token()).unwrap();
        let start = Instant::now();
        assert!(old.wait_lost_for(LONG));
        assert!(start.elapsed() < ms(1500) + BOUND, "{:?}", start.elapsed());
        assert!(new.is_valid());
        assert_eq!(way.value("k").as_deref(), Some(new.token()));
        new.unlock().unwrap();
        assert_kind(old.unlock(), ErrorKind::Lost);
    });
}

#[test]
fn a_guard_that_was_lost_to_a_resumed_hold_does_not_end_it() {
    every_way(|way| {
        let mine = way.lock("k", &LockOptions::new().ttl(ms(900)));
        let old = mine.lock().unwrap();
        let new = way.lock("k", &LockOptions::new()).resume(old.token()).unwrap();
        assert!(old.wait_lost_for(LONG));
        drop(old);
        assert_eq!(way.value("k").as_deref(), Some(new.token()));
        new.unlock().unwrap();
    });
}
