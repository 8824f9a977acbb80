//! Looking at a hold, and giving it to somebody else.

use std::time::Duration;

use distlock::{DistLock, ErrorKind, LockOptions};

use super::{LONG, brief, lock};
use crate::support::ways::on_every_way;

#[test]
fn an_observer_sees_who_holds_and_for_how_long() {
    on_every_way(|way| {
        let options = LockOptions::new().label("web-1.blue");
        let lock = DistLock::with_options(&way.client(), "k", &options).unwrap();
        let observer = self::lock(way, "k");
        assert!(observer.holder().unwrap().is_none() && !observer.is_locked().unwrap(), "{}", way.name);
        let guard = lock.lock().unwrap();
        let holder = observer.holder().unwrap().unwrap();
        assert_eq!(holder.token, guard.token());
        assert_eq!(holder.label.as_deref(), Some("web-1.blue"));
        let remaining = holder.remaining.unwrap();
        assert!(remaining > Duration::from_secs(25) && remaining <= Duration::from_secs(30), "{remaining:?}");
        assert!(observer.is_locked().unwrap());
    });
}

#[test]
fn a_hold_is_given_away_and_taken_over_with_a_new_fence() {
    on_every_way(|way| {
        let giver = lock(way, "k");
        for taker in [giver.clone(), lock(way, "k")] {
            let guard = giver.lock().unwrap();
            let fence = guard.fence();
            let token = guard.into_token().unwrap();
            assert_eq!(way.ask::<String>(&["GET", "k"]), token, "{}: the giver does not release", way.name);
            assert!(way.ask::<i64>(&["PTTL", "k"]) > 29_000);
            let resumed = taker.resume(&token).unwrap();
            assert!(resumed.fence() > fence && resumed.is_valid());
            assert_eq!(resumed.token(), token);
            assert!(giver.try_lock().unwrap_err().is_taken());
            resumed.unlock().unwrap();
            assert!(giver.try_lock().is_ok());
        }
    });
}

#[test]
fn what_is_given_away_is_not_renewed_here() {
    on_every_way(|way| {
        let options = LockOptions::new().ttl(Duration::from_millis(300));
        let token = DistLock::with_options(&way.client(), "k", &options).unwrap().lock().unwrap().into_token().unwrap();
        let next = lock(way, "k").try_lock_for(LONG).unwrap();
        assert_ne!(next.token(), token, "{}", way.name);
        assert_eq!(lock(way, "k").resume(&token).unwrap_err().kind(), ErrorKind::Lost);
        assert!(next.is_valid());
    });
}

#[test]
fn a_hold_that_is_gone_cannot_be_taken_over() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        for token in ["nobody's", "", "d0.a-1"] {
            assert_eq!(lock.resume(token).unwrap_err().kind(), ErrorKind::Lost, "{}", way.name);
        }
        assert!(!lock.is_locked().unwrap(), "{}: nothing was taken", way.name);
        let guard = lock.lock().unwrap();
        assert_eq!(lock.resume("nobody's").unwrap_err().kind(), ErrorKind::Lost);
        let expired = brief(way, "short", Duration::from_millis(50)).lock().unwrap();
        assert!(expired.wait_lost_for(LONG));
        assert_eq!(expired.into_token().unwrap_err().kind(), ErrorKind::Lost);
        guard.unlock().unwrap();
    });
}

#[test]
fn a_hold_that_is_resumed_under_a_living_guard_is_lost_to_it_at_its_next_renewal() {
    on_every_way(|way| {
        let options = LockOptions::new().ttl(Duration::from_millis(600));
        let old = DistLock::with_options(&way.client(), "k", &options).unwrap().lock().unwrap();
        let new = lock(way, "k").resume(old.token()).unwrap();
        assert!(old.wait_lost_for(Duration::from_millis(900)), "{}", way.name);
        assert!(new.is_valid() && new.fence() > old.fence());
        // It has the same token: what is lost to it does not end it.
        assert_eq!(old.unlock().unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(way.ask::<String>(&["GET", "k"]), new.token(), "{}", way.name);
        new.unlock().unwrap();
    });
}
