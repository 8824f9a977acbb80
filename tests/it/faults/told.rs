//! `on_lost`: every loss is told, once, in time, whatever Redis does.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, LockClient, LockOptions, Lost, LostReason, Renew};

use crate::support::proxy::{RENEW, calls};
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually};

const TTL: Duration = Duration::from_millis(600);
const LONG: Duration = Duration::from_secs(10);

/// What was told, and when.
type Told = Arc<Mutex<Vec<(Lost, Instant)>>>;

fn listening(told: &Told, options: LockOptions) -> LockOptions {
    let told = Arc::clone(told);
    options.on_lost(move |lost| told.lock().unwrap().push((lost.clone(), Instant::now())))
}

fn lock(client: &LockClient, key: &str, told: &Told) -> DistLock {
    DistLock::with_options(client, key, &listening(told, LockOptions::new().ttl(TTL))).unwrap()
}

/// The one thing that was told; nothing follows it.
#[track_caller]
fn only(told: &Told) -> (Lost, Instant) {
    eventually(LONG, "told", || !told.lock().unwrap().is_empty());
    std::thread::sleep(Duration::from_millis(50));
    let mut told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    told.pop().unwrap()
}

#[test]
fn each_kind_of_loss_is_told_with_its_reason() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let told = Told::default();
    let guard = lock(&client, "k", &told).lock().unwrap();
    let _: () = server.ask(&["DEL", "k"]);
    let (lost, _) = only(&told);
    assert_eq!((&*lost.key, lost.fence, lost.reason), ("k", guard.fence(), LostReason::Deleted));
    drop(guard);

    let guard = lock(&client, "k", &told).lock().unwrap();
    let _: () = server.ask(&["SET", "k", "somebody", "PX", "1000"]);
    assert_eq!(only(&told).0.reason, LostReason::Taken);
    drop(guard);

    let never = listening(&told, LockOptions::new().ttl(TTL).renew(Renew::Never));
    let _guard = DistLock::with_options(&client, "never", &never).unwrap().lock().unwrap();
    assert_eq!(only(&told).0.reason, LostReason::Expired);

    let most = listening(&told, LockOptions::new().ttl(TTL).renew(Renew::AtMost(Duration::from_millis(900))));
    let _guard = DistLock::with_options(&client, "most", &most).unwrap().lock().unwrap();
    assert_eq!(only(&told).0.reason, LostReason::HeldTooLong);
}

#[test]
fn a_loss_is_told_when_the_lease_ends_while_its_renewal_hangs() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(LONG).open(proxy.url()).unwrap();
    proxy.rule(Way::Reply, Fate::Hold, usize::MAX, calls(RENEW));
    let told = Told::default();
    let guard = lock(&client, "k", &told).lock().unwrap();
    let ends = Instant::now() + guard.remaining();
    let (lost, at) = only(&told);
    assert_eq!(lost.reason, LostReason::Expired);
    assert!(at + Duration::from_millis(5) >= ends && at < ends + SLACK, "{:?}", at.saturating_duration_since(ends));
    assert!(!guard.is_valid());
}

#[test]
fn what_is_renewed_or_released_in_time_is_not_told() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let told = Told::default();
    let kept = lock(&client, "kept", &told).lock().unwrap();
    for _ in 0..20 {
        lock(&client, "k", &told).lock().unwrap().unlock().unwrap();
        drop(lock(&client, "k", &told).lock().unwrap());
    }
    let token = lock(&client, "given", &told).lock().unwrap().into_token().unwrap();
    std::thread::sleep(3 * TTL);
    assert!(kept.is_valid());
    assert!(told.lock().unwrap().is_empty(), "{told:?}");
    drop((kept, token));
}

#[test]
fn a_callback_that_panics_or_is_slow_disturbs_no_renewal_and_no_later_callback() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let told = Told::default();
    let kept = lock(&client, "kept", &told).lock().unwrap();
    let bad = LockOptions::new().ttl(TTL).on_lost(|_| panic!("a user's own defect"));
    let slow = LockOptions::new().ttl(TTL).on_lost(|_| std::thread::sleep(2 * TTL));
    let guards = [("bad", bad), ("slow", slow)]
        .map(|(key, options)| DistLock::with_options(&client, key, &options).unwrap().lock().unwrap());
    let last = lock(&client, "last", &told).lock().unwrap();
    let _: () = server.ask(&["DEL", "bad", "slow", "last"]);
    assert!(guards[0].wait_lost_for(LONG) && guards[1].wait_lost_for(LONG) && last.wait_lost_for(LONG));
    assert_eq!(&*only(&told).0.key, "last");
    assert!(!kept.wait_lost_for(TTL), "renewed all the while");
}

#[test]
fn a_callback_may_use_locks_of_its_own_client() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let told = Told::default();
    let (theirs, again) = (Arc::clone(&told), DistLock::new(&client, "again"));
    let options = LockOptions::new().ttl(TTL).on_lost(move |lost| {
        again.lock().unwrap().unlock().unwrap();
        theirs.lock().unwrap().push((lost.clone(), Instant::now()));
    });
    let guard = DistLock::with_options(&client, "k", &options).unwrap().lock().unwrap();
    let _: () = server.ask(&["DEL", "k"]);
    assert_eq!(only(&told).0.fence, guard.fence());
}

#[test]
fn a_loss_that_was_found_is_told_also_if_the_guard_goes_at_once() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    for _ in 0..20 {
        let told = Told::default();
        let guard = lock(&client, "k", &told).lock().unwrap();
        let _: () = server.ask(&["DEL", "k"]);
        assert!(guard.extend(Duration::ZERO).is_err());
        drop(guard);
        assert_eq!(only(&told).0.reason, LostReason::Deleted);
    }
}

#[test]
fn a_loss_that_redis_reports_is_told_at_once_and_not_when_the_lease_ends() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    for (loss, reason) in
        [(&["DEL", "k"][..], LostReason::Deleted), (&["SET", "k", "somebody", "PX", "100"], LostReason::Taken)]
    {
        let told = Told::default();
        let options = listening(&told, LockOptions::new().ttl(Duration::from_secs(30)));
        let guard = DistLock::with_options(&client, "k", &options).unwrap().lock().unwrap();
        let _: () = server.ask(loss);
        let start = Instant::now();
        assert!(guard.extend(Duration::ZERO).is_err());
        let (lost, at) = only(&told);
        assert_eq!(lost.reason, reason);
        assert!(at < start + SLACK, "{:?}", at - start);
    }
}

#[test]
fn a_lease_that_ran_out_is_told_also_if_its_guard_goes_in_that_moment() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let told = Told::default();
    let brief = LockOptions::new().ttl(Duration::from_millis(20)).renew(Renew::Never);
    let lock = DistLock::with_options(&client, "k", &listening(&told, brief)).unwrap();
    for _ in 0..100 {
        let guard = lock.lock().unwrap();
        assert!(guard.wait_lost_for(LONG));
        drop(guard);
    }
    eventually(LONG, "all are told", || told.lock().unwrap().len() == 100);
    assert!(told.lock().unwrap().iter().all(|(lost, _)| lost.reason == LostReason::Expired));
}
