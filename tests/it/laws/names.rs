//! Keys: any text, but for our own bookkeeping, and what is no lock.

use std::time::Duration;

use distlock::{DistLock, ErrorKind, LockOptions, redis};

use super::{LONG, assert_kind, assert_taken, takes};
use crate::support::{
    Server,
    ways::{Way, every_server, every_way},
};

#[test]
fn any_text_is_a_key_and_stands_in_redis_as_it_is() {
    let long = "k".repeat(10_000);
    let keys = [
        "",
        " ",
        "\0",
        "a\0b",
        "orders 42",
        "{",
        "}",
        "{}",
        "{a}b",
        "a{b}c",
        "}{",
        "{{x}}",
        "*?[a]",
        "line\r\nbreak",
        "größe 💶",
        "distlock",
        "distlock:",
        "$-1",
        &long,
    ];
    every_way(|way| {
        let (mine, yours) = (way.client(), way.client());
        let mut guards = Vec::new();
        for key in keys {
            let guard = DistLock::new(&mine, key).try_lock().unwrap_or_else(|e| panic!("{key:?}: {e:?}"));
            assert_eq!(guard.key(), key);
            assert_eq!(way.value(key).as_deref(), Some(guard.token()), "{key:?}");
            assert_taken(DistLock::new(&yours, key).try_lock());
            guards.push(guard);
        }
        // All at once: no two share anything.
        for guard in guards {
            let key = guard.key().to_owned();
            guard.unlock().unwrap_or_else(|e| panic!("{key:?}: {e:?}"));
            assert!(!DistLock::new(&yours, &key).is_locked().unwrap(), "{key:?}");
        }
        assert_eq!(way.left_over(), [""; 0]);
    });
}

#[test]
fn awkward_keys_have_the_fence_that_the_protocol_gives_them() {
    // Lua in Redis reads JSON; the demo server's does not, so one server reads the table for all.
    let server = Server::start();
    let decoded =
        |json: &str| -> String { server.ask(&["EVAL", "return cjson.decode(ARGV[1])[1]", "0", &format!("[{json}]")]) };
    let row = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        (decoded(columns[0]), decoded(columns[2]))
    };
    let rows: Vec<(String, String)> = include_str!("../names.tsv").lines().skip(1).map(row).collect();
    assert_eq!(rows.len(), 41);
    every_server(|way| {
        let client = way.client();
        for (key, fence) in &rows {
            let guard = DistLock::new(&client, key).lock().unwrap();
            assert_eq!(way.value(fence), Some(guard.fence().to_string()), "{key:?}");
        }
        // And nothing else is left.
        assert_eq!(way.left_over(), [""; 0]);
        assert_eq!(way.ask::<usize>(&["DBSIZE"]), rows.len());
    });
}

/// Every method of a lock, and what it says.
fn all_methods(lock: &DistLock) -> [(&'static str, distlock::Result<()>); 8] {
    [
        ("lock", lock.lock().map(drop)),
        ("try_lock", lock.try_lock().map(drop)),
        ("try_lock_for", lock.try_lock_for(LONG).map(drop)),
        ("try_lock_until", lock.try_lock_until(std::time::Instant::now() + LONG).map(drop)),
        ("is_locked", lock.is_locked().map(drop)),
        ("holder", lock.holder().map(drop)),
        ("force_unlock", lock.force_unlock().map(drop)),
        ("resume", lock.resume("token").map(drop)),
    ]
}

#[track_caller]
fn assert_all(lock: &DistLock, kind: ErrorKind) {
    for (method, outcome) in takes(Duration::ZERO, || all_methods(lock)) {
        assert_eq!(outcome.map_err(|e| e.kind()), Err(kind), "{method} of {:?}", lock.key());
    }
}

#[test]
fn our_own_bookkeeping_is_refused_by_every_method() {
    const RESERVED: [&str; 4] =
        ["distlock:fence:{k}", "distlock:fence/x", "distlock:queue:{k}", "distlock:waiters:{k}"];
    every_server(|way| {
        let client = way.client();
        for key in RESERVED {
            assert_all(&DistLock::new(&client, key), ErrorKind::InvalidOption);
            assert_kind(DistLock::with_options(&client, key, &LockOptions::new()), ErrorKind::InvalidOption);
        }
        assert_eq!(way.ask::<i64>(&["DBSIZE"]), 0);
    });
}

fn make_other(way: &Way, command: &[&str]) {
    way.ask::<()>(&["DEL", "k"]);
    way.ask::<redis::Value>(command);
}

#[test]
fn a_key_of_another_type_is_an_error_at_once_and_stays_as_it_is() {
    let others: [&[&str]; 5] = [
        &["RPUSH", "k", "a"],
        &["SADD", "k", "a"],
        &["HSET", "k", "a", "b"],
        &["ZADD", "k", "1", "a"],
        &["XADD", "k", "*", "a", "b"],
    ];
    every_server(|way| {
        let lock = way.lock("k", &LockOptions::new());
        for command in others {
            make_other(way, command);
            assert_all(&lock, ErrorKind::WrongType);
            assert_eq!(way.ask::<i64>(&["EXISTS", "k"]), 1, "{command:?}");
        }
        way.ask::<()>(&["DEL", "k"]);
        lock.try_lock().unwrap().unlock().unwrap();
    });
}

#[test]
fn a_hold_whose_key_became_another_type_is_lost() {
    every_server(|way| {
        let lock = way.lock("k", &LockOptions::new());
        let (one, other) = (lock.lock().unwrap(), way.lock("o", &LockOptions::new()).lock().unwrap());
        make_other(way, &["RPUSH", "k", "a"]);
        assert_kind(one.extend(Duration::ZERO), ErrorKind::Lost);
        assert_kind(one.unlock(), ErrorKind::Lost);
        way.ask::<()>(&["DEL", "o"]);
        way.ask::<()>(&["RPUSH", "o", "a"]);
        assert_kind(other.unlock(), ErrorKind::Lost);
        assert!(["k", "o"].into_iter().all(|key| way.ask::<i64>(&["EXISTS", key]) == 1));
    });
}
