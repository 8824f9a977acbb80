//! Requests and replies that are lost, servers that are away or are no masters: on every way of
//! building a client. What is peculiar to connections of our own is in `faults`.

use std::thread;

use distlock::{DistLock, ErrorKind, LockOptions};

use super::{LONG, assert_kind, ms};
use crate::support::proxy::{LEAVE, RELEASE, TRY, calls};
use crate::support::ways::{every_real_server, every_server_through_a_proxy};
use crate::support::{Proxy, Way as Direction, eventually};

/// A lock of a client whose server knows the scripts from here on.
fn warm(way: &crate::support::ways::Way, proxy: &Proxy) -> DistLock {
    proxy.pass();
    let lock = way.lock("k", &LockOptions::new());
    lock.lock().unwrap().unlock().unwrap();
    lock
}

#[test]
fn a_lost_reply_does_not_block_the_retry() {
    every_server_through_a_proxy(|way, proxy| {
        for fate in way.fates() {
            let lock = warm(way, proxy);
            let leaves = proxy.answered(calls(LEAVE));
            proxy.rule(Direction::Reply, fate.clone(), 1, calls(TRY));
            let guard = lock.try_lock_for(LONG).unwrap_or_else(|e| panic!("{fate:?}: {e:?}"));
            assert_eq!(way.value("k").as_deref(), Some(guard.token()), "{fate:?}");
            guard.unlock().unwrap();
            // A copy of the first attempt might have been executed late.
            eventually(LONG, "a final leave", || proxy.answered(calls(LEAVE)) > leaves);
            assert!(way.left_over().is_empty(), "{fate:?}");
        }
    });
}

#[test]
fn a_lost_request_is_asked_again() {
    every_server_through_a_proxy(|way, proxy| {
        for fate in way.fates() {
            let lock = warm(way, proxy);
            proxy.rule(Direction::Request, fate.clone(), 1, calls(TRY));
            let guard = lock.try_lock_for(LONG).unwrap_or_else(|e| panic!("{fate:?}: {e:?}"));
            assert_eq!(way.value("k").as_deref(), Some(guard.token()), "{fate:?}");
            guard.unlock().unwrap();
            assert_eq!(way.value("k"), None, "{fate:?}");
        }
    });
}

#[test]
fn a_release_whose_reply_was_lost_is_a_release() {
    every_server_through_a_proxy(|way, proxy| {
        for fate in way.fates() {
            let lock = warm(way, proxy);
            let guard = lock.lock().unwrap();
            proxy.rule(Direction::Reply, fate.clone(), 1, calls(RELEASE));
            guard.unlock().unwrap_or_else(|e| panic!("{fate:?}: {e:?}"));
            assert_eq!(way.value("k"), None, "{fate:?}");
        }
    });
}

#[test]
fn a_release_whose_request_was_lost_is_made_up_for() {
    every_server_through_a_proxy(|way, proxy| {
        for fate in way.fates() {
            let lock = warm(way, proxy);
            let guard = lock.lock().unwrap();
            proxy.rule(Direction::Request, fate.clone(), 1, calls(RELEASE));
            guard.unlock().unwrap_or_else(|e| panic!("{fate:?}: {e:?}"));
            eventually(LONG, "released", || way.value("k").is_none());
        }
    });
}

#[test]
fn a_guard_that_is_dropped_is_released_whatever_is_lost_of_it() {
    every_server_through_a_proxy(|way, proxy| {
        for direction in [Direction::Request, Direction::Reply] {
            for fate in way.fates() {
                let lock = warm(way, proxy);
                let guard = lock.lock().unwrap();
                proxy.rule(direction, fate.clone(), 1, calls(RELEASE));
                drop(guard);
                eventually(LONG, "released", || way.value("k").is_none());
                assert!(lock.try_lock().is_ok(), "{direction:?}, {fate:?}");
            }
        }
    });
}

#[test]
fn a_program_may_start_before_redis() {
    every_real_server(|way| {
        way.server().kill();
        let client = way.client();
        assert_kind(client.ping(), ErrorKind::Unreachable);
        let lock = DistLock::new(&client, "k");
        assert_kind(lock.try_lock(), ErrorKind::Unreachable);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.lock().unwrap().unlock());
            thread::sleep(ms(100));
            assert!(!waiting.is_finished(), "it waits for Redis");
            way.server().restart();
            waiting.join().unwrap().unwrap();
        });
        client.ping().unwrap();
    });
}

#[test]
fn a_demoted_master_loses_and_releases_nothing_and_goes_on_when_it_is_promoted() {
    every_real_server(|way| {
        if way.is_of_a_cluster() {
            return; // Where nodes change their roles otherwise, which has tests of its own.
        }
        let options = LockOptions::new().ttl(ms(3000)).unreachable_after(ms(300));
        let client = way.client();
        let lock = |key| DistLock::with_options(&client, key, &options).unwrap();
        let (kept, given) = (lock("kept").lock().unwrap(), lock("given").lock().unwrap());
        // Of a master that is not there: the data stays, and writes are refused.
        way.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
        assert_kind(kept.extend(ms(0)), ErrorKind::Unavailable);
        assert_kind(lock("new").try_lock(), ErrorKind::Unavailable);
        assert_kind(lock("new").lock(), ErrorKind::Unavailable);
        given.unlock().expect("its lease is good, and goes back as soon as there is a master");
        assert!(way.value("given").is_some(), "a replica deletes nothing");
        assert!(kept.is_valid(), "a replica's word ends no lease");
        way.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
        eventually(ms(2500), "given back", || way.value("given").is_none());
        // The kept lock is renewed again: it outlives the lease that it had.
        assert!(!kept.wait_lost_for(ms(3500)));
        kept.unlock().unwrap();
    });
}
