//! What observers see and operators can do.

use std::time::{Duration, Instant};

use distlock::{ErrorKind, LockOptions};

use super::{BOUND, assert_kind, ms};
use crate::support::ways::{every_server, every_way};

#[test]
fn who_holds_it_and_for_how_long_is_seen_by_all() {
    every_way(|way| {
        let mine = way.lock("k", &LockOptions::new().ttl(ms(10_000)).label("me.and/you"));
        let yours = way.lock("k", &LockOptions::new());
        assert!(!mine.is_locked().unwrap());
        assert!(yours.holder().unwrap().is_none());
        let guard = mine.lock().unwrap();
        for lock in [&mine, &yours] {
            assert!(lock.is_locked().unwrap());
            let holder = lock.holder().unwrap().unwrap();
            assert_eq!(holder.token, guard.token());
            assert_eq!(holder.label.as_deref(), Some("me.and/you"));
            let remaining = holder.remaining.unwrap();
            assert!(remaining <= ms(10_000) && remaining > ms(5000), "{remaining:?}");
        }
        guard.unlock().unwrap();
        assert!(!yours.is_locked().unwrap());
        let _unlabelled = yours.lock().unwrap();
        assert_eq!(mine.holder().unwrap().unwrap().label, None);
    });
}

#[test]
fn a_foreign_holder_is_seen_as_it_is() {
    every_server(|way| {
        let lock = way.lock("k", &LockOptions::new());
        way.ask::<()>(&["SET", "k", "theirs.a.b", "PX", "9000"]);
        let holder = lock.holder().unwrap().unwrap();
        assert_eq!((holder.token.as_str(), holder.label), ("theirs.a.b", None));
        assert!(holder.remaining.unwrap() <= ms(9000));
        way.ask::<()>(&["PERSIST", "k"]);
        assert_eq!(lock.holder().unwrap().unwrap().remaining, None);
        assert!(lock.is_locked().unwrap());
    });
}

#[test]
fn force_unlock_frees_whoever_holds_it_and_the_holder_notices() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new().ttl(ms(3000))), way.lock("k", &LockOptions::new()));
        assert!(!yours.force_unlock().unwrap(), "there was nothing to free");
        let guard = mine.lock().unwrap();
        assert!(yours.force_unlock().unwrap());
        assert!(!yours.is_locked().unwrap());
        let next = yours.try_lock().unwrap();
        let start = Instant::now();
        assert!(guard.wait_lost_for(ms(10_000)));
        assert!(start.elapsed() < ms(1500) + BOUND, "{:?}", start.elapsed());
        assert!(!guard.is_valid());
        assert_kind(guard.unlock(), ErrorKind::Lost);
        assert_eq!(way.value("k").as_deref(), Some(next.token()));
        // A foreign holder, too.
        drop(next);
        way.ask::<()>(&["SET", "k", "theirs"]);
        assert!(mine.force_unlock().unwrap());
        assert!(!mine.force_unlock().unwrap());
    });
}

#[test]
fn a_waiter_goes_on_at_its_next_look_after_a_force_unlock() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        let guard = mine.lock().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| yours.lock().map(|guard| guard.fence()));
            std::thread::sleep(ms(30));
            assert!(!waiter.is_finished());
            way.lock("k", &LockOptions::new()).force_unlock().unwrap();
            let fence = super::takes(Duration::ZERO, || waiter.join().unwrap()).unwrap();
            assert!(fence > guard.fence());
        });
    });
}
