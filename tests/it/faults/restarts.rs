//! A server that is killed and comes back: with nothing, with everything, or with what it had some time ago.

use std::time::{Duration, Instant};

use distlock::{DistLock, ErrorKind, LockClient, LockOptions};

use crate::support::{SLACK, Server, eventually};

const TTL: Duration = Duration::from_millis(1500);
const LONG: Duration = Duration::from_secs(10);

fn lock(server: &Server, key: &str) -> DistLock {
    let client = LockClient::open(server.url()).unwrap();
    DistLock::with_options(&client, key, &LockOptions::new().ttl(TTL)).unwrap()
}

#[test]
fn a_server_that_comes_back_with_all_that_it_had_loses_no_lock() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let guard = lock(&server, "k").lock().unwrap();
    server.kill();
    server.restart();
    assert!(!guard.wait_lost_for(2 * TTL), "renewed there");
    assert!(lock(&server, "k").try_lock().unwrap_err().is_taken());
    let fence = guard.fence();
    guard.unlock().unwrap();
    assert!(lock(&server, "k").lock().unwrap().fence() > fence);
}

#[test]
fn a_lock_that_an_old_snapshot_does_not_have_is_lost_and_fences_still_grow() {
    let mut server = Server::start();
    lock(&server, "k").lock().unwrap().unlock().unwrap();
    let _: () = server.ask(&["SAVE"]);
    // The fence of this one is not in the snapshot.
    let guard = lock(&server, "k").lock().unwrap();
    server.kill();
    server.restart();
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), ["distlock:fence:{k}"]);
    assert!(guard.wait_lost_for(TTL / 2 + SLACK), "at its next renewal");
    let next = lock(&server, "k").lock().unwrap();
    assert!(next.fence() > guard.fence(), "{} after {}", next.fence(), guard.fence());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.is_valid());
}

#[test]
fn a_hold_that_is_over_and_comes_back_with_an_old_snapshot_blocks_for_the_rest_of_its_ttl() {
    let mut server = Server::start();
    let old = lock(&server, "k").lock().unwrap();
    let _: () = server.ask(&["SAVE"]);
    let saved = Instant::now();
    old.unlock().unwrap();
    let guard = lock(&server, "k").lock().unwrap();
    server.kill();
    server.restart();
    // The key is another's again: of a hold that nobody has.
    assert!(guard.wait_lost_for(TTL / 2 + SLACK));
    let next = lock(&server, "k").try_lock_for(LONG).unwrap();
    assert!(saved.elapsed() + SLACK > TTL / 2 && saved.elapsed() < TTL + SLACK, "{:?}", saved.elapsed());
    assert!(next.fence() > guard.fence());
    eventually(LONG, "the stale one is gone", || next.is_valid());
}
