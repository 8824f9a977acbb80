//! Fences only grow, whatever happens to Redis' memory.

use distlock::{DistLock, LockOptions};

use super::{ms, once, outlive};
use crate::support::ways::{Way, every_server, every_way};

fn cycle(lock: &DistLock) -> u64 {
    let guard = lock.lock().unwrap();
    let fence = guard.fence();
    guard.unlock().unwrap();
    fence
}

#[track_caller]
fn assert_grow(fences: &[u64]) {
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "{fences:?}");
    assert!(fences.iter().all(|fence| *fence < 1 << 53), "{fences:?}");
}

#[test]
fn fences_grow_over_acquisitions_and_clients() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        let mut fences: Vec<u64> = (0..20).flat_map(|_| [&mine, &yours].map(cycle)).collect();
        fences.push(cycle(&way.lock("k", &LockOptions::new())));
        assert_grow(&fences);
    });
}

#[test]
fn fences_grow_over_a_flush_of_all_data_and_of_the_scripts() {
    every_server(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        let mut fences = Vec::new();
        for command in [["FLUSHALL", "SYNC"], ["SCRIPT", "FLUSH"], ["DEL", "distlock:fence:{k}"]] {
            for lock in [&mine, &yours] {
                fences.push(cycle(lock));
                way.ask::<()>(&command);
            }
        }
        fences.push(cycle(&way.lock("k", &LockOptions::new())));
        assert_grow(&fences);
    });
}

#[test]
fn fences_grow_over_expired_holds() {
    every_way(|way| {
        let lock = way.lock("k", &once(ms(60)));
        let mut fences = Vec::new();
        for _ in 0..3 {
            let guard = lock.lock().unwrap();
            fences.push(guard.fence());
            outlive(&guard);
        }
        assert_grow(&fences);
    });
}

#[test]
fn a_fence_goes_on_from_whatever_the_stored_one_says() {
    every_server(|way| {
        let far = (1u64 << 52).to_string();
        assert!(with_stored(way, &far) > 1 << 52);
        // No number of ours: started afresh, from the server's clock.
        for stored in ["", "x", "-5", "inf", "1e300", "0x10", "99999999999999999999"] {
            let fence = with_stored(way, stored);
            assert!(fence > 1_000_000_000_000_000 && fence < 1 << 52, "{stored:?}: {fence}");
        }
    });
}

fn with_stored(way: &Way, stored: &str) -> u64 {
    way.ask::<()>(&["SET", "distlock:fence:{k}", stored]);
    cycle(&way.lock("k", &LockOptions::new()))
}

#[test]
fn scripts_survive_a_flush_on_every_path() {
    every_server(|way| {
        let flush = || way.ask::<()>(&["SCRIPT", "FLUSH"]);
        let lock = way.lock("k", &LockOptions::new().ttl(ms(400)));
        flush();
        let guard = lock.lock().unwrap();
        flush();
        assert!(!guard.wait_lost_for(ms(600)), "renewed");
        flush();
        guard.extend(ms(600)).unwrap();
        flush();
        let token = guard.into_token().unwrap();
        flush();
        let guard = lock.resume(&token).unwrap();
        flush();
        guard.unlock().unwrap();
        flush();
        let guard = lock.try_lock().unwrap();
        flush();
        assert!(lock.force_unlock().unwrap());
        drop(guard);
    });
}

#[test]
fn fences_grow_over_a_flush_also_where_they_are_ahead_of_the_clock() {
    every_server(|way| {
        let lock = way.lock("k", &LockOptions::new());
        way.ask::<()>(&["SET", "distlock:fence:{k}", &(1u64 << 52).to_string()]);
        let mut fences = vec![1 << 52];
        for _ in 0..3 {
            fences.push(cycle(&lock));
            way.ask::<()>(&["FLUSHALL", "SYNC"]);
        }
        assert_grow(&fences);
    });
}
