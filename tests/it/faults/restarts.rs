//! A server that is killed and comes back: with nothing, with everything, or with what it had some time ago;
//! that forgets a key by itself; whose clock is stepped.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

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

#[test]
fn a_server_that_lost_the_end_of_its_log_comes_back_with_an_older_state_and_fences_still_grow() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always", "--aof-load-truncated", "yes"]);
    let guard = lock(&server, "k").lock().unwrap();
    server.kill();
    cut_the_log(server.folder());
    server.restart();
    // The last write was the key: what came before it is there.
    assert_eq!(server.ask::<i64>(&["EXISTS", "k"]), 0);
    assert!(guard.wait_lost_for(TTL / 2 + SLACK));
    let next = lock(&server, "k").lock().unwrap();
    assert!(next.fence() > guard.fence());
}

/// Takes a few bytes off the end of the newest file.
fn cut_the_log(folder: &Path) {
    let mut files: Vec<PathBuf> = vec![folder.to_owned()];
    let mut logs = Vec::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()));
        } else if path.to_string_lossy().ends_with("aof") && std::fs::metadata(&path).unwrap().len() > 0 {
            logs.push(path);
        }
    }
    let log = logs.iter().max_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap()).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(log).unwrap();
    file.set_len(file.metadata().unwrap().len() - 5).unwrap();
}

#[test]
fn a_lock_that_redis_evicts_is_lost_and_told() {
    let server = Server::start();
    let guard = lock(&server, "k").lock().unwrap();
    let used: String = server.ask(&["INFO", "memory"]);
    let used: u64 = used.lines().find_map(|line| line.strip_prefix("used_memory:")?.parse().ok()).unwrap();
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory", &(used + 300_000).to_string()]);
    let filler = "x".repeat(20_000);
    let mut connection = server.connection();
    for i in 0..2_000 {
        let _ = redis::cmd("SET").arg(format!("filler {i}")).arg(&filler).exec(&mut connection);
        if redis::cmd("EXISTS").arg("k").query::<i64>(&mut connection).unwrap() == 0 {
            break;
        }
    }
    assert_eq!(server.ask::<i64>(&["EXISTS", "k"]), 0, "it was not evicted");
    let evicted = Instant::now();
    assert!(guard.wait_lost_for(TTL));
    assert!(evicted.elapsed() < TTL / 2 + SLACK, "{:?}", evicted.elapsed());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn a_clock_that_is_stepped_ends_no_fence_order_and_no_wait() {
    let server = Server::start().with_a_clock_of_its_own();
    let seconds = || server.ask::<(u64, u64)>(&["TIME"]).0;
    let (one, other) = (lock(&server, "k"), lock(&server, "k"));
    let mut last = one.lock().unwrap().fence();
    for step in [60, -60, 0, 60, 0] {
        let guard = one.try_lock_for(LONG).unwrap();
        assert!(guard.fence() > last, "{} after {last}, before {step} s", guard.fence());
        let before = seconds();
        server.step_clock(step);
        eventually(LONG, "stepped", || seconds().abs_diff(before) > 30 || step == 0);
        // A lease that the server counts to its end early is lost, and told; one that it counts late is kept.
        let lost = guard.wait_lost_for(TTL);
        let next = if lost { other.try_lock_for(LONG).unwrap() } else { guard };
        assert!(next.is_valid());
        last = next.fence();
        assert!(last > 0);
        let _ = next.unlock();
        let next = other.try_lock_for(LONG).unwrap();
        assert!(next.fence() > last, "{} after {last}, after {step} s", next.fence());
        last = next.fence();
        next.unlock().unwrap();
        assert_eq!(server.ask::<i64>(&["EXISTS", "k"]), 0);
    }
}
