//! Wrong keys, options and addresses: a clear word at once, and nothing hangs or panics.

use std::time::Duration;

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient, LockOptions, Renew};

use super::lock;
use crate::support::Server;
use crate::support::ways::on_every_way;

#[test]
fn any_text_is_a_key_and_stands_in_redis_as_it_is() {
    let long = "x".repeat(10_000);
    let keys =
        ["", " ", "a b", "a\0b", "line\nbreak", "{}", "{a}b", "}{", "日本", "distlock:", "a:b", "*", "\u{7f}", &long];
    on_every_way(|way| {
        let client = way.client();
        for key in keys {
            let guard = DistLock::new(&client, key).try_lock().unwrap();
            assert_eq!(way.ask::<String>(&["GET", key]), guard.token(), "{}: {key:?}", way.name);
            assert_eq!(guard.key(), key);
            guard.unlock().unwrap();
            assert_eq!(way.ask::<i64>(&["EXISTS", key]), 0);
        }
        assert_eq!(way.ask::<usize>(&["DBSIZE"]), keys.len(), "a fence each");
    });
}

#[test]
fn the_crates_own_bookkeeping_cannot_be_locked() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    for key in ["distlock:fence", "distlock:fence:{x}", "distlock:queue/", "distlock:waiters{1}"] {
        let error = DistLock::with_options(&client, key, &LockOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(key), "{error}");
        let lock = DistLock::new(&client, key);
        let kinds = [
            lock.lock().unwrap_err().kind(),
            lock.try_lock().unwrap_err().kind(),
            lock.try_lock_for(Duration::from_secs(9)).unwrap_err().kind(),
            lock.force_unlock().unwrap_err().kind(),
            lock.holder().unwrap_err().kind(),
            lock.resume("t").unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::InvalidOption; 6], "{key}");
    }
}

#[test]
fn options_out_of_their_limits_are_refused_when_the_lock_is_made() {
    let client = LockClient::open("redis://127.0.0.1:1/").unwrap();
    let short = LockOptions::new().ttl(Duration::from_millis(9));
    let error = DistLock::with_options(&client, "k", &short).unwrap_err();
    assert_eq!(error.to_string(), "ttl of 9ms is below 10ms");
    let options = LockOptions::new().renew(Renew::AtMost(Duration::ZERO));
    assert_eq!(DistLock::with_options(&client, "k", &options).unwrap_err().kind(), ErrorKind::InvalidOption);
}

#[test]
fn addresses_and_client_options_that_cannot_work_are_refused_when_the_client_is_made() {
    for address in ["", "127.0.0.1", "http://127.0.0.1/", "redis://", "redis://127.0.0.1/x", "redis://0.0.0.0/"] {
        let error = LockClient::open(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{address}");
    }
    if cfg!(not(any(feature = "tls-rustls", feature = "tls-native-tls"))) {
        assert_eq!(LockClient::open("rediss://127.0.0.1/").unwrap_err().kind(), ErrorKind::InvalidOption);
    }
    let url = "redis://127.0.0.1:1/";
    let table = [
        (ClientOptions::new().io_timeout(Duration::ZERO), "io_timeout of 0ns is below 1ms"),
        (ClientOptions::new().io_timeout(Duration::from_secs(61)), "io_timeout of 61s is above 60s"),
        (ClientOptions::new().max_connections(0), "max_connections of 0"),
        (ClientOptions::new().max_connections(1001), "max_connections of 1001"),
    ];
    for (options, text) in table {
        let error = options.open(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn no_text_of_ours_shows_a_password() {
    let client = LockClient::open("redis://user:s3cret@127.0.0.1:1/").unwrap();
    let lock = DistLock::new(&client, "k");
    let error = lock.try_lock().unwrap_err();
    for text in [format!("{client:?}"), format!("{lock:?}"), format!("{error:?}"), format!("{error}")] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    let named = ClientOptions::new().name("orders\0\n").open("redis://127.0.0.1:1/").unwrap();
    let error = DistLock::new(&named, "k").try_lock().unwrap_err();
    assert!(error.to_string().contains("orders"), "{error}");
}

#[test]
fn a_client_with_any_name_locks_and_renews() {
    let server = Server::start();
    for name in ["", "two words", "a\0b", "line\nbreak", &"n".repeat(300), "日本"] {
        let client = ClientOptions::new().name(name).open(server.url()).unwrap();
        DistLock::new(&client, "k").lock().unwrap().unlock().unwrap_or_else(|e| panic!("{name:?}: {e:?}"));
    }
}

#[test]
fn ping_says_whether_locks_will_work_and_leaves_nothing() {
    on_every_way(|way| {
        way.client().ping().unwrap_or_else(|e| panic!("{}: {e:?}", way.name));
        assert_eq!(way.ask::<usize>(&["DBSIZE"]), 0, "{}", way.name);
        assert!(lock(way, "k").try_lock().is_ok());
    });
}
