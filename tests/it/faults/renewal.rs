//! Renewal under faults: the clock decides, and one bad entry disturbs no other.

use std::time::{Duration, Instant};

use distlock::{ClientOptions, DistLock, DistLockGuard, LockClient, LockOptions};

use crate::support::proxy::{RENEW, calls, contains};
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually};

const TTL: Duration = Duration::from_millis(600);

fn lock(client: &LockClient, key: &str) -> DistLock {
    DistLock::with_options(client, key, &LockOptions::new().ttl(TTL)).unwrap()
}

fn held(client: &LockClient, keys: usize) -> Vec<DistLockGuard> {
    (0..keys).map(|i| lock(client, &format!("k{i}")).lock().unwrap()).collect()
}

#[test]
fn a_lease_ends_by_the_clock_while_its_renewal_hangs_and_no_late_answer_revives_it() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().open(proxy.url()).unwrap();
    proxy.rule(Way::Reply, Fate::Hold, usize::MAX, calls(RENEW));
    let start = Instant::now();
    let guard = lock(&client, "k").lock().unwrap();
    assert!(guard.wait_lost_for(Duration::from_secs(5)));
    assert!(start.elapsed() >= TTL / 2, "{:?}", start.elapsed());
    assert!(start.elapsed() < TTL + SLACK, "{:?}", start.elapsed());
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    proxy.pass();
    proxy.release();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!guard.is_valid());
    assert!(guard.extend(TTL).is_err());
}

#[test]
fn a_silent_server_is_noticed_when_the_lease_ends() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let guard = lock(&client, "k").lock().unwrap();
    std::thread::sleep(TTL);
    assert!(guard.is_valid(), "renewed meanwhile");
    let ends = Instant::now() + guard.remaining();
    server.pause();
    assert!(guard.wait_lost_for(Duration::from_secs(5)));
    assert!(Instant::now() + Duration::from_millis(20) >= ends);
    assert!(Instant::now() < ends + TTL + SLACK);
}

#[test]
fn an_outage_shorter_than_the_lease_loses_nothing() {
    for fate in [Fate::Lose, Fate::Cut] {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let client = LockClient::open(proxy.url()).unwrap();
        let options = LockOptions::new().ttl(Duration::from_secs(3));
        let guard = DistLock::with_options(&client, "k", &options).unwrap().lock().unwrap();
        guard.extend(Duration::ZERO).unwrap();
        proxy.rule(Way::Request, fate.clone(), 1, calls(RENEW));
        assert!(!guard.wait_lost_for(Duration::from_secs(4)), "{fate:?}");
        guard.unlock().unwrap();
    }
}

#[test]
fn a_lost_lock_in_a_batch_leaves_the_others() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let guards = held(&client, 20);
    let _: () = server.ask(&["DEL", "k3"]);
    let _: () = server.ask(&["SET", "k7", "somebody"]);
    let _: () = server.ask(&["DEL", "k11"]);
    let _: () = server.ask(&["RPUSH", "k11", "a list"]);
    let is_bad = |i: usize| [3, 7, 11].contains(&i);
    for i in [3, 7, 11] {
        assert!(guards[i].wait_lost_for(3 * TTL), "k{i}");
    }
    // The others are renewed once more after the last loss.
    let left: Vec<_> = guards.iter().map(|guard| Instant::now() + guard.remaining()).collect();
    for (i, guard) in guards.iter().enumerate().filter(|(i, _)| !is_bad(*i)) {
        eventually(2 * TTL, "renewed", || Instant::now() + guard.remaining() > left[i] + TTL / 8);
        assert!(guard.is_valid(), "k{i}");
    }
    drop(guards);
    assert_eq!(server.ask::<String>(&["GET", "k7"]), "somebody");
    assert_eq!(server.ask::<u32>(&["LLEN", "k11"]), 1);
}

#[test]
fn a_script_flush_costs_renewals_a_trip_and_nothing_else() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let guards = held(&client, 50);
    for _ in 0..8 {
        let _: () = server.ask(&["SCRIPT", "FLUSH"]);
        std::thread::sleep(TTL / 4);
    }
    assert!(guards.iter().all(DistLockGuard::is_valid));
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
}

#[test]
fn a_key_that_is_deleted_by_hand_is_noticed_within_half_a_ttl() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let guard = lock(&client, "k").lock().unwrap();
    let start = Instant::now();
    let _: () = server.ask(&["DEL", "k"]);
    assert!(guard.wait_lost_for(Duration::from_secs(5)));
    assert!(start.elapsed() < TTL / 2 + SLACK / 2, "{:?}", start.elapsed());
    let error = guard.unlock().unwrap_err();
    assert!(error.to_string().contains("its key is gone"), "{error}");
}

#[test]
fn a_released_lock_is_not_renewed() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = LockClient::open(proxy.url()).unwrap();
    let (kept, gone) = (lock(&client, "kept").lock().unwrap(), lock(&client, "gone").lock().unwrap());
    let token = gone.token().to_owned();
    let renewals = |token: &str| proxy.count(|request| calls(RENEW)(request) && contains(request, token.as_bytes()));
    eventually(Duration::from_secs(3), "a renewal", || renewals(&token) > 0);
    gone.unlock().unwrap();
    let before = (renewals(&token), renewals(kept.token()));
    eventually(Duration::from_secs(3), "more renewals", || renewals(kept.token()) > before.1 + 1);
    assert_eq!(renewals(&token), before.0);
}
