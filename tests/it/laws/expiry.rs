//! Leases that end, and what may be said and done after that.

use std::{
    mem,
    time::{Duration, Instant},
};

use distlock::{DistLock, ErrorKind, LockOptions, Renew};

use super::{LONG, brief, lock};
use crate::support::ways::on_every_way;
use crate::support::{SLACK, eventually};

const TTL: Duration = Duration::from_millis(300);

#[test]
fn a_lease_that_is_not_renewed_ends_by_the_clock_before_the_servers_ttl() {
    on_every_way(|way| {
        let start = Instant::now();
        let guard = brief(way, "k", TTL).lock().unwrap();
        assert!(guard.is_valid() && guard.remaining() > Duration::ZERO && guard.remaining() <= TTL);
        assert!(!guard.wait_lost_for(Duration::ZERO));
        assert!(guard.wait_lost_for(LONG), "{}", way.name);
        let took = start.elapsed();
        assert!(took < TTL + SLACK, "{}: {took:?}", way.name);
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert_eq!(guard.extend(TTL).unwrap_err().kind(), ErrorKind::Lost, "it is not revived");
    });
}

#[test]
fn an_expired_guard_releases_nothing_of_its_successors() {
    on_every_way(|way| {
        let old = [brief(way, "k", TTL).lock().unwrap(), brief(way, "l", TTL).lock().unwrap()];
        let new = ["k", "l"].map(|key| lock(way, key).try_lock_for(LONG).unwrap());
        let [unlocked, dropped] = old;
        assert!(!unlocked.is_valid());
        let error = unlocked.unlock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{}", way.name);
        drop(dropped);
        assert!(new.iter().all(|guard| guard.is_valid()));
        for guard in new {
            assert_eq!(way.ask::<String>(&["GET", guard.key()]), guard.token());
            guard.unlock().unwrap();
        }
    });
}

#[test]
fn a_wait_may_be_longer_than_the_holders_ttl() {
    on_every_way(|way| {
        let guard = brief(way, "k", TTL).lock().unwrap();
        let start = Instant::now();
        let next = lock(way, "k").try_lock_for(LONG).unwrap();
        assert!(start.elapsed() < TTL + SLACK, "{}: {:?}", way.name, start.elapsed());
        assert!(next.fence() > guard.fence());
    });
}

#[test]
fn a_leaked_guard_blocks_its_own_process_no_longer_than_its_ttl() {
    on_every_way(|way| {
        let lock = brief(way, "k", TTL);
        mem::forget(lock.lock().unwrap());
        let start = Instant::now();
        drop(lock.try_lock_for(LONG).unwrap());
        assert!(start.elapsed() < TTL + SLACK, "{}: {:?}", way.name, start.elapsed());
    });
}

#[test]
fn at_most_ends_a_hold_that_is_renewed() {
    on_every_way(|way| {
        for (ttl, limit) in [(200, 700), (700, 300)].map(|(t, l)| (Duration::from_millis(t), Duration::from_millis(l)))
        {
            let options = LockOptions::new().ttl(ttl).renew(Renew::AtMost(limit));
            let start = Instant::now();
            let guard = DistLock::with_options(&way.client(), "k", &options).unwrap().lock().unwrap();
            assert!(guard.wait_lost_for(LONG));
            let took = start.elapsed();
            assert!(took <= limit + SLACK, "{}: {took:?}", way.name);
            assert!(took + Duration::from_millis(60) >= limit.max(ttl.min(limit)), "{}: {took:?}", way.name);
            // The server keeps the key for the drift that we took off.
            eventually(LONG, "gone", || way.ask::<i64>(&["EXISTS", "k"]) == 0);
            let error = guard.unlock().unwrap_err();
            assert!(error.to_string().contains("as long as it may be"), "{}: {error}", way.name);
            drop(lock(way, "k").try_lock_for(LONG).unwrap());
        }
    });
}

#[test]
fn a_held_lock_outlives_its_ttl_many_times() {
    on_every_way(|way| {
        let options = LockOptions::new().ttl(TTL);
        let guard = DistLock::with_options(&way.client(), "k", &options).unwrap().lock().unwrap();
        assert!(!guard.wait_lost_for(4 * TTL), "{}", way.name);
        assert!(lock(way, "k").try_lock().unwrap_err().is_taken());
        guard.unlock().unwrap();
    });
}

#[test]
fn extend_gives_at_least_what_was_asked_and_never_shortens() {
    on_every_way(|way| {
        let guard = brief(way, "k", Duration::from_secs(2)).lock().unwrap();
        guard.extend(Duration::from_secs(20)).unwrap();
        assert!(guard.remaining() > Duration::from_millis(19_500), "{}: {:?}", way.name, guard.remaining());
        for shorter in [Duration::ZERO, Duration::from_secs(1)] {
            guard.extend(shorter).unwrap();
            assert!(guard.remaining() > Duration::from_secs(19), "{}", way.name);
            assert!(way.ask::<i64>(&["PTTL", "k"]) > 19_000);
        }
        let error = guard.extend(Duration::from_secs(400 * 24 * 3600)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(guard.is_valid());
        let _: () = way.ask(&["DEL", "k"]);
        assert_eq!(guard.extend(Duration::ZERO).unwrap_err().kind(), ErrorKind::Lost);
        assert!(!guard.is_valid());
        assert_eq!(way.ask::<Option<String>>(&["GET", "k"]), None, "it is not brought back");
    });
}

#[test]
fn extend_does_not_reach_past_at_most() {
    on_every_way(|way| {
        let options = LockOptions::new().renew(Renew::AtMost(Duration::from_secs(5)));
        let guard = DistLock::with_options(&way.client(), "k", &options).unwrap().lock().unwrap();
        let error = guard.extend(Duration::from_secs(6)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains("6s") && error.to_string().contains("are possible"), "{error}");
        guard.extend(Duration::from_secs(3)).unwrap();
        guard.unlock().unwrap();
    });
}

#[test]
fn a_key_that_was_deleted_or_forced_open_makes_unlock_an_error() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        let guard = lock.lock().unwrap();
        let _: () = way.ask(&["DEL", "k"]);
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{}", way.name);
        let guard = lock.lock().unwrap();
        assert!(lock.force_unlock().unwrap());
        assert!(!lock.force_unlock().unwrap());
        let next = self::lock(way, "k").try_lock().unwrap();
        let error = guard.unlock().unwrap_err();
        assert!(error.to_string().contains("somebody else"), "{error}");
        assert!(next.is_valid());
        next.unlock().unwrap();
    });
}

#[test]
fn a_forced_unlock_is_noticed_by_the_holder() {
    on_every_way(|way| {
        let lock = DistLock::with_options(&way.client(), "k", &LockOptions::new().ttl(TTL)).unwrap();
        let guard = lock.lock().unwrap();
        let start = Instant::now();
        lock.force_unlock().unwrap();
        assert!(guard.wait_lost_for(LONG));
        assert!(start.elapsed() < TTL + SLACK, "{}: {:?}", way.name, start.elapsed());
    });
}

#[test]
fn a_loss_that_is_found_out_lets_the_siblings_behind_it_in_at_once() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        let guard = lock.lock().unwrap();
        std::thread::scope(|scope| {
            let sibling = scope.spawn(|| lock.try_lock_for(LONG).map(|guard| (Instant::now(), drop(guard)).0));
            // It sleeps behind the guard, for up to a second at a time.
            std::thread::sleep(Duration::from_millis(50));
            lock.force_unlock().unwrap();
            let found = Instant::now();
            assert_eq!(guard.extend(Duration::ZERO).unwrap_err().kind(), ErrorKind::Lost);
            let took = sibling.join().unwrap().unwrap() - found;
            assert!(took < SLACK, "{}: {took:?}", way.name);
        });
    });
}
