//! A lease has an end, and its holder knows it by the clock; renewal and `extend` move it.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, ErrorKind, LockOptions, Renew};

use super::{BOUND, LONG, assert_kind, ms, once, outlive, takes};
use crate::support::ways::{Way, every_server, every_way};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[test]
fn a_guard_that_is_not_renewed_turns_invalid_by_the_clock() {
    every_way(|way| {
        let guard = way.lock("k", &once(ms(400))).lock().unwrap();
        assert!(guard.is_valid() && guard.remaining() > ms(100) && guard.remaining() < ms(400));
        let start = Instant::now();
        outlive(&guard);
        assert!(start.elapsed() < ms(400) + BOUND, "{:?}", start.elapsed());
        assert!(!guard.is_valid());
        assert_eq!(guard.remaining(), Duration::ZERO);
    });
}

/// A lease that is over, and the token of the one who took the lock after it.
fn overtaken(way: &Way) -> (distlock::DistLockGuard, distlock::DistLockGuard) {
    let stale = way.lock("k", &once(ms(200))).lock().unwrap();
    let next = takes(Duration::ZERO, || way.lock("k", &LockOptions::new()).try_lock_for(LONG)).unwrap();
    assert!(!stale.is_valid() && next.is_valid());
    assert!(next.fence() > stale.fence());
    (stale, next)
}

#[test]
fn unlocking_an_expired_guard_says_lost_at_once_and_deletes_nothing_of_the_successors() {
    every_way(|way| {
        let (stale, next) = overtaken(way);
        assert_kind(takes(Duration::ZERO, || stale.unlock()), ErrorKind::Lost);
        assert_eq!(way.value("k").as_deref(), Some(next.token()));
        next.unlock().unwrap();
    });
}

#[test]
fn dropping_an_expired_guard_deletes_nothing_of_the_successors() {
    every_way(|way| {
        let (stale, next) = overtaken(way);
        drop(stale);
        assert_eq!(way.value("k").as_deref(), Some(next.token()));
        next.unlock().unwrap();
    });
}

#[test]
fn unlocking_an_expired_guard_that_nobody_followed_says_lost() {
    every_way(|way| {
        let guard = way.lock("k", &once(ms(100))).lock().unwrap();
        outlive(&guard);
        takes(Duration::ZERO, || while way.value("k").is_some() {});
        assert_kind(guard.unlock(), ErrorKind::Lost);
    });
}

#[test]
fn a_lease_of_one_hold_never_leaks_into_the_next() {
    every_way(|way| {
        let lock = way.lock("k", &once(ms(400)));
        for _ in 0..3 {
            let guard = lock.lock().unwrap();
            assert!(guard.remaining() > ms(200), "{:?}", guard.remaining());
            outlive(&guard);
        }
    });
}

#[test]
fn a_held_lock_is_renewed_by_default() {
    every_way(|way| {
        let guard = way.lock("k", &LockOptions::new().ttl(ms(300))).lock().unwrap();
        assert!(!guard.wait_lost_for(ms(1200)), "four times its ttl");
        assert_eq!(way.value("k").as_deref(), Some(guard.token()));
        guard.unlock().unwrap();
    });
}

#[test]
fn a_lock_is_renewed_again_after_a_loss() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new().ttl(ms(300)));
        let guard = lock.lock().unwrap();
        way.ask::<()>(&["DEL", "k"]);
        assert!(guard.wait_lost_for(LONG));
        assert_kind(guard.unlock(), ErrorKind::Lost);
        let guard = lock.lock().unwrap();
        assert!(!guard.wait_lost_for(ms(700)));
        guard.unlock().unwrap();
    });
}

#[test]
fn a_renewal_never_brings_a_key_back() {
    every_way(|way| {
        let guard = way.lock("k", &LockOptions::new().ttl(ms(300))).lock().unwrap();
        way.ask::<()>(&["DEL", "k"]);
        assert!(guard.wait_lost_for(LONG));
        thread::sleep(ms(150));
        assert_eq!(way.value("k"), None);
        drop(guard);
    });
}

#[test]
fn extend_prolongs_to_at_least_what_was_asked_for() {
    every_way(|way| {
        let guard = way.lock("k", &once(ms(1000))).lock().unwrap();
        let start = Instant::now();
        guard.extend(ms(5000)).unwrap();
        assert!(guard.remaining() + start.elapsed() >= ms(5000));
        let pttl: i64 = way.ask(&["PTTL", "k"]);
        assert!((3000..6000).contains(&pttl), "{pttl}");
        assert!(!guard.wait_lost_for(ms(1300)), "past its first lease");
        guard.unlock().unwrap();
    });
}

#[test]
fn extend_never_shortens() {
    every_way(|way| {
        let guard = way.lock("k", &once(ms(20_000))).lock().unwrap();
        for at_least in [ms(100), Duration::ZERO] {
            guard.extend(at_least).unwrap();
            assert!(guard.remaining() > ms(10_000), "{:?}", guard.remaining());
            assert!(way.ask::<i64>(&["PTTL", "k"]) > 10_000);
        }
    });
}

#[test]
fn extending_what_is_lost_says_so_and_does_not_revive_it() {
    every_way(|way| {
        let lock = way.lock("k", &once(ms(5000)));
        let guard = lock.lock().unwrap();
        way.ask::<()>(&["DEL", "k"]);
        assert_kind(guard.extend(ms(5000)), ErrorKind::Lost);
        assert!(!guard.is_valid());
        assert_eq!(way.value("k"), None);
        let (stale, next) = overtaken(way);
        assert_kind(stale.extend(ms(5000)), ErrorKind::Lost);
        assert_kind(stale.extend(Duration::ZERO), ErrorKind::Lost);
        assert!(!stale.is_valid());
        assert_eq!(way.value("k").as_deref(), Some(next.token()));
    });
}

#[test]
fn a_lease_that_is_over_by_the_clock_is_not_extended_though_the_key_is_there() {
    every_server(|way| {
        let guard = way.lock("k", &once(ms(100))).lock().unwrap();
        way.ask::<()>(&["PERSIST", "k"]);
        outlive(&guard);
        assert_kind(guard.extend(ms(100)), ErrorKind::Lost);
        assert!(!guard.is_valid());
    });
}

#[test]
fn extend_has_its_limits() {
    every_way(|way| {
        let client = way.client();
        let guard = DistLock::with_options(&client, "k", &once(ms(5000))).unwrap().lock().unwrap();
        for at_least in [YEAR + Duration::from_nanos(1), Duration::MAX] {
            let text = assert_kind(guard.extend(at_least), ErrorKind::InvalidOption).to_string();
            assert!(text.contains("31536000s"), "{text}");
        }
        guard.extend(YEAR).unwrap();
        let capped = LockOptions::new().ttl(ms(5000)).renew(Renew::AtMost(ms(8000)));
        let guard = DistLock::with_options(&client, "capped", &capped).unwrap().lock().unwrap();
        assert_kind(guard.extend(ms(9000)), ErrorKind::InvalidOption);
        assert!(guard.is_valid(), "a refused extension changes nothing");
        guard.extend(ms(6000)).unwrap();
        assert!(guard.remaining() > ms(5000));
    });
}

#[test]
fn at_most_ends_a_hold_though_it_is_renewed() {
    every_way(|way| {
        let options = LockOptions::new().ttl(ms(400)).renew(Renew::AtMost(ms(1200)));
        let start = Instant::now();
        let guard = way.lock("k", &options).lock().unwrap();
        outlive(&guard);
        let held = start.elapsed();
        assert!(held > ms(1000) && held < ms(1200) + BOUND, "{held:?}");
        // By itself, while the guard lives.
        let next = takes(Duration::ZERO, || way.lock("k", &options).try_lock_for(LONG)).unwrap();
        let text = assert_kind(guard.unlock(), ErrorKind::Lost).to_string();
        assert!(text.contains("k") && next.is_valid(), "{text}");
    });
}

#[test]
fn at_most_below_the_ttl_shortens_the_first_lease() {
    every_way(|way| {
        let options = LockOptions::new().renew(Renew::AtMost(ms(500)));
        let guard = way.lock("k", &options).lock().unwrap();
        let pttl: i64 = way.ask(&["PTTL", "k"]);
        assert!((0..=500).contains(&pttl), "{pttl}");
        assert!(guard.remaining() <= ms(500));
        takes(Duration::ZERO, || outlive(&guard));
        takes(Duration::ZERO, || way.lock("k", &options).try_lock_for(LONG)).unwrap().unlock().unwrap();
    });
}
