//! Beside others: foreign clients on the same key, siblings behind a guard, waiters that cost nothing.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{Backoff, ClientOptions, DistLock, ErrorKind, Interrupt, LockClient, LockOptions, Wait};

use super::{BOUND, LONG, assert_kind, assert_taken, ms};
use crate::support::{
    Server, eventually,
    ways::{every_server, every_way},
};

const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

#[test]
fn we_exclude_a_foreign_client_and_it_cannot_delete_what_is_ours() {
    every_way(|way| {
        let guard = way.lock("k", &LockOptions::new()).lock().unwrap();
        let set = || way.ask::<Option<String>>(&["SET", "k", "theirs", "NX", "PX", "60000"]);
        assert_eq!(set(), None);
        assert_eq!(way.ask::<i32>(&["EVAL", DELETE, "1", "k", "theirs"]), 0);
        assert_eq!(way.value("k").as_deref(), Some(guard.token()));
        guard.unlock().unwrap();
        assert_eq!(set().as_deref(), Some("OK"));
    });
}

#[test]
fn a_foreign_key_with_an_enormous_ttl_is_taken() {
    every_way(|way| {
        let _: () = way.ask(&["SET", "k", "theirs", "PX", "4000000000000000"]);
        assert_taken(way.lock("k", &LockOptions::new()).try_lock());
    });
}

#[test]
fn a_loss_that_is_found_out_lets_the_siblings_behind_it_in_at_once() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new());
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let sibling = scope.spawn(|| lock.try_lock_for(LONG).map(|guard| (Instant::now(), drop(guard)).0));
            // It sleeps behind the guard, for up to a second at a time.
            thread::sleep(ms(50));
            lock.force_unlock().unwrap();
            let found = Instant::now();
            assert_kind(guard.extend(Duration::ZERO), ErrorKind::Lost);
            let took = sibling.join().unwrap().unwrap() - found;
            assert!(took < BOUND, "{took:?}");
        });
    });
}

#[test]
fn an_interrupt_wakes_a_thread_that_waits_behind_its_own_process() {
    every_way(|way| {
        let interrupt = Interrupt::new();
        let lock = way.lock("k", &LockOptions::new().interrupt(&interrupt));
        let _guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let behind = scope.spawn(|| lock.lock().map(drop));
            thread::sleep(ms(50));
            let start = Instant::now();
            interrupt.interrupt();
            assert_kind(behind.join().unwrap(), ErrorKind::Interrupted);
            assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
        });
    });
}

#[test]
fn waiters_ask_no_more_often_than_their_backoff_says() {
    every_server(|way| {
        let slow = Backoff::new().spins(0).first_pause(ms(100)).cap(ms(100));
        let lock = way.lock("k", &LockOptions::new().backoff(slow).wait(Wait::Spin));
        lock.lock().unwrap().unlock().unwrap();
        let _: () = way.ask(&["SET", "k", "somebody"]);
        let before = way.script_calls();
        thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| lock.try_lock_for(Duration::from_secs(1)).map(drop))));
        });
        let calls = way.script_calls() - before;
        assert!(calls <= 14, "four threads, one head, ten pauses: {calls}");
    });
}

#[test]
fn waiting_threads_hold_no_connection() {
    let server = Server::start();
    let client = ClientOptions::new().max_connections(1).open(server.url()).unwrap();
    let foreign: Vec<_> = (0..10).map(|i| format!("k{i}")).collect();
    foreign.iter().for_each(|key| server.ask(&["SET", key, "somebody"]));
    thread::scope(|scope| {
        for key in &foreign {
            let lock = DistLock::new(&client, key);
            scope.spawn(move || lock.try_lock_for(ms(500)).unwrap_err());
        }
        let lock = DistLock::new(&client, "mine");
        for _ in 0..20 {
            lock.lock().unwrap().unlock().unwrap();
        }
    });
}

#[test]
fn connections_end_with_the_client_and_its_guards() {
    let server = Server::start();
    let clients = || server.ask::<String>(&["CLIENT", "LIST", "TYPE", "normal"]).lines().count();
    let before = clients();
    for _ in 0..3 {
        let client = LockClient::open(server.url()).unwrap();
        let guard = DistLock::new(&client, "k").lock().unwrap();
        drop(client);
        assert!(guard.is_valid(), "a client may go before its guards");
    }
    eventually(LONG, "connections are closed", || clients() <= before);
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
fn options_out_of_their_limits_are_refused_with_value_and_limit() {
    let client = LockClient::open("redis://127.0.0.1:1/").unwrap();
    let short = LockOptions::new().ttl(ms(9));
    let error = assert_kind(DistLock::with_options(&client, "k", &short), ErrorKind::InvalidOption);
    assert_eq!(error.to_string(), "ttl of 9ms: 10ms to 365 days are possible");
    let table = [
        (ClientOptions::new().io_timeout(Duration::ZERO), "io_timeout of 0ns: 1ms to 60s"),
        (ClientOptions::new().io_timeout(Duration::from_secs(61)), "io_timeout of 61s: 1ms to 60s"),
        (ClientOptions::new().max_connections(0), "max_connections of 0"),
        (ClientOptions::new().max_connections(1001), "max_connections of 1001"),
    ];
    for (options, text) in table {
        let error = assert_kind(options.open("redis://127.0.0.1:1/"), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(text), "{error}");
    }
}
