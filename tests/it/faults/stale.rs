//! Connections that were closed while nobody used them, and servers that came back empty.

use std::time::Duration;

use distlock::{DistLock, LockClient, LockOptions};

use crate::support::{Proxy, Server, eventually};

#[test]
fn a_closed_pooled_connection_is_no_reason_to_say_taken_or_to_fail() {
    let server = Server::start();
    let lock = DistLock::new(&LockClient::open(server.url()).unwrap(), "k");
    for _ in 0..5 {
        lock.try_lock().unwrap().unlock().unwrap();
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    let guard = lock.try_lock().unwrap();
    let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn a_closed_connection_of_a_given_pool_that_tests_none_is_no_reason_to_fail() {
    let server = Server::start();
    let manager = distlock::redis::Client::open(server.url()).unwrap();
    let pool = distlock::r2d2::Pool::builder().max_size(1).test_on_check_out(false).build(manager).unwrap();
    let lock = DistLock::new(&LockClient::from_pool(pool), "k");
    for _ in 0..3 {
        let guard = lock.try_lock().unwrap();
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        guard.unlock().unwrap();
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
}

#[test]
fn a_server_that_closes_idle_connections_loses_no_lock() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    // Renewed every 5 s, so that between two renewals the server, which counts whole seconds, has closed all.
    let options = LockOptions::new().ttl(Duration::from_secs(15));
    let kept = DistLock::with_options(&client, "kept", &options).unwrap().lock().unwrap();
    let lock = DistLock::new(&client, "k");
    let _: () = server.ask(&["CONFIG", "SET", "timeout", "1"]);
    for _ in 0..2 {
        lock.try_lock().unwrap().unlock().unwrap();
        kept.extend(Duration::ZERO).unwrap();
        eventually(Duration::from_secs(20), "closed by the server", || {
            !server.ask::<String>(&["CLIENT", "LIST"]).contains("name=distlock")
        });
    }
    // Its renewals went over connections that had been closed since the last one.
    assert!(!kept.wait_lost_for(Duration::from_secs(6)));
    kept.unlock().unwrap();
}

#[test]
fn a_restarted_server_is_used_at_once_and_fences_still_grow() {
    let mut server = Server::start();
    let lock = DistLock::new(&LockClient::open(server.url()).unwrap(), "k");
    let mut last = 0;
    for _ in 0..4 {
        let guard = lock.try_lock().unwrap();
        assert!(guard.fence() > last);
        last = guard.fence();
        guard.unlock().unwrap();
        server.kill();
        server.restart();
    }
}

#[test]
fn a_script_flush_costs_every_call_a_trip_and_nothing_else() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let lock = DistLock::new(&client, "k");
    let flush = || -> () { server.ask(&["SCRIPT", "FLUSH"]) };
    let mut last = 0;
    for _ in 0..5 {
        flush();
        let guard = lock.try_lock().unwrap();
        assert!(guard.fence() > last);
        last = guard.fence();
        flush();
        guard.extend(Duration::from_secs(40)).unwrap();
        flush();
        let token = guard.into_token().unwrap();
        flush();
        let guard = lock.resume(&token).unwrap();
        flush();
        guard.unlock().unwrap();
        flush();
        assert!(!lock.force_unlock().unwrap());
        flush();
        client.ping().unwrap();
    }
}

#[test]
fn connections_are_bounded_by_the_pool() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = distlock::ClientOptions::new().max_connections(3).open(proxy.url()).unwrap();
    std::thread::scope(|scope| {
        for i in 0..16 {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..20 {
                    DistLock::new(client, format!("k{i}")).lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
    assert!(proxy.connections() <= 3, "{}", proxy.connections());
}
