//! What cannot work is said at once, and with the right kind: addresses, credentials, rights, a port
//! that does not speak Redis.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
    time::Duration,
};

use distlock::{DistLock, ErrorKind, LockClient};

use super::{LONG, assert_kind, ms, takes};
use crate::support::{Server, eventually, server::NOBODY};

fn lock_at(url: &str) -> DistLock {
    DistLock::new(&LockClient::open(url).unwrap(), "k")
}

/// Waiting or not, it is said at once.
#[track_caller]
fn assert_at_once(url: &str, kind: ErrorKind) {
    let lock = lock_at(url);
    takes(Duration::ZERO, || {
        assert_kind(lock.lock(), kind);
        assert_kind(lock.try_lock(), kind);
        assert_kind(lock.try_lock_for(LONG), kind);
        assert_kind(lock.holder(), kind);
        assert_kind(lock.force_unlock(), kind);
        assert_kind(lock.resume("token"), kind);
        assert_kind(LockClient::open(url).unwrap().ping(), kind);
    });
}

#[test]
fn wrong_credentials_are_denied_at_once() {
    let server = Server::with(&["--requirepass", "s3cret"]);
    let port = server.port();
    for login in ["", ":wrong@", "nobody:s3cret@"] {
        assert_at_once(&format!("redis://{login}127.0.0.1:{port}/"), ErrorKind::Denied);
    }
    let open = Server::start();
    // A password where none is set.
    assert_at_once(&format!("redis://:s3cret@127.0.0.1:{}/", open.port()), ErrorKind::Denied);
}

#[test]
fn an_error_never_shows_the_password() {
    let server = Server::with(&["--requirepass", "s3cret"]);
    let client = LockClient::open(format!("redis://:wr0ng@127.0.0.1:{}/", server.port())).unwrap();
    let error = assert_kind(client.ping(), ErrorKind::Denied);
    let lock = DistLock::new(&client, "k");
    let all = format!("{error} {error:?} {client:?} {lock:?} {:?}", lock.lock());
    assert!(!all.contains("wr0ng"), "{all}");
}

#[test]
fn a_database_that_is_not_there_is_an_invalid_option() {
    let server = Server::start();
    assert_at_once(&format!("redis://127.0.0.1:{}/99", server.port()), ErrorKind::InvalidOption);
}

#[test]
fn a_refused_port_is_reported_in_milliseconds() {
    let url = format!("redis://127.0.0.1:{}/", NOBODY);
    let lock = lock_at(&url);
    let start = std::time::Instant::now();
    let error = assert_kind(lock.try_lock(), ErrorKind::Unreachable);
    assert!(start.elapsed() < ms(200), "{:?}", start.elapsed());
    assert!(error.is_transient() && !error.is_taken());
    assert_kind(LockClient::open(url).unwrap().ping(), ErrorKind::Unreachable);
    assert_kind(takes(ms(150), || lock.try_lock_for(ms(150))), ErrorKind::Unreachable);
    let socket = lock_at("unix:///nowhere/redis.sock");
    assert_kind(takes(Duration::ZERO, || socket.try_lock()), ErrorKind::Unreachable);
}

#[test]
fn what_is_no_address_is_an_invalid_option() {
    for text in ["", "nonsense", "http://127.0.0.1/", "redis://127.0.0.1:99999/", "redis://127.0.0.1/x"] {
        let error = assert_kind(LockClient::open(text), ErrorKind::InvalidOption);
        assert!(error.to_string().contains("redis://"), "{text:?}: {error}");
    }
}

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
#[test]
fn a_tls_address_without_the_feature_says_so() {
    let error = assert_kind(LockClient::open("rediss://127.0.0.1/"), ErrorKind::InvalidOption);
    assert!(format!("{error:?}").to_lowercase().contains("tls"), "{error:?}");
}

/// A port that says something else to whoever comes, for as long as the test runs.
fn says(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(answer);
                // Until the other side goes: closing at once could reset what was said.
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    url
}

#[test]
fn a_port_that_does_not_speak_redis_is_told_from_one_that_is_silent() {
    const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const GARBAGE: &[u8] = b"\x15\x03\x03\x00\x02\x02\x46garbage\r\n\r\n";
    for answer in [HTTP, GARBAGE] {
        let lock = lock_at(&says(answer));
        for outcome in takes(Duration::ZERO, || [lock.lock(), lock.try_lock(), lock.try_lock_for(LONG)]) {
            assert_kind(outcome, ErrorKind::Protocol);
        }
    }
}

#[test]
fn a_port_whose_answers_are_redis_and_nonsense_never_gives_a_lock() {
    // TIME and CLIENT SETNAME are answered well; what follows is an answer to nothing.
    for answer in
        [&b"+OK\r\n*2\r\n$1\r\n1\r\n$1\r\n1\r\n$4\r\nheld\r\n"[..], b"+OK\r\n+OK\r\n+OK\r\n", b":1\r\n:1\r\n:1\r\n"]
    {
        assert_kind(lock_at(&says(answer)).try_lock_for(ms(50)), ErrorKind::Protocol);
    }
}

#[test]
fn ping_finds_a_good_set_up_and_leaves_nothing() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    client.ping().unwrap();
    client.ping().unwrap();
    assert_eq!(server.ask::<i64>(&["DBSIZE"]), 0);
}

/// A user with the rules, and a client as that user.
fn client_as(server: &Server, rules: &[&str]) -> LockClient {
    let user = ["ACL", "SETUSER", "worker", "reset", "on", ">pw"];
    server.ask::<()>(&[&user[..], rules].concat());
    // What is loaded already is not asked for.
    server.ask::<()>(&["SCRIPT", "FLUSH"]);
    LockClient::open(format!("redis://worker:pw@127.0.0.1:{}/", server.port())).unwrap()
}

#[test]
fn ping_finds_every_right_that_is_missing() {
    let server = Server::start();
    let commands = ["evalsha", "eval", "get", "set", "del", "pexpire", "pttl", "renamenx", "exists", "time"];
    let missing = commands.map(|command| format!("-{command}"));
    for rule in &missing {
        let client = client_as(&server, &["~*", "+@all", rule]);
        let error = client.ping().err().unwrap_or_else(|| panic!("{rule}: ping says nothing"));
        assert_eq!(error.kind(), ErrorKind::Denied, "{rule}: {error:?}");
    }
    // A key pattern that leaves the crate's own keys out.
    assert_kind(client_as(&server, &["~orders:*", "+@all"]).ping(), ErrorKind::Denied);
    client_as(&server, &["~*", "+@all"]).ping().unwrap();
    // What a refused probe could not delete goes by itself.
    eventually(LONG, "nothing is left", || server.ask::<i64>(&["DBSIZE"]) == 0);
}

#[test]
fn the_rights_that_ping_asks_for_are_enough_to_lock() {
    let server = Server::start();
    let rules = "~* +evalsha +eval +get +set +del +pexpire +pttl +renamenx +exists +time +select +client|setname";
    let client = client_as(&server, &rules.split(' ').collect::<Vec<_>>());
    client.ping().unwrap();
    let lock = DistLock::new(&client, "k");
    let guard = lock.lock().unwrap();
    guard.extend(ms(50)).unwrap();
    assert!(lock.is_locked().unwrap());
    let guard = lock.resume(&guard.into_token().unwrap()).unwrap();
    guard.unlock().unwrap();
    assert!(!lock.force_unlock().unwrap());
}

#[test]
fn a_lock_without_the_right_to_its_key_is_denied_at_once() {
    let server = Server::start();
    let lock = DistLock::new(&client_as(&server, &["~orders:*", "+@all"]), "k");
    for outcome in takes(Duration::ZERO, || [lock.lock(), lock.try_lock(), lock.try_lock_for(LONG)]) {
        assert_kind(outcome, ErrorKind::Denied);
    }
}
