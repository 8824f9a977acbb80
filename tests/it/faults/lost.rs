//! Requests and replies that do not arrive, and replies that are not ours.

use std::time::{Duration, Instant};

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient, LockOptions};

use crate::support::proxy::{TRY, calls, contains};
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually};

const IO: Duration = Duration::from_millis(150);

pub(super) fn client(proxy: &Proxy) -> LockClient {
    ClientOptions::new().io_timeout(IO).open(proxy.url()).unwrap()
}

#[test]
fn a_cycle_is_two_commands_on_one_connection() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = LockClient::open(proxy.url()).unwrap();
    let lock = DistLock::new(&client, "k");
    assert_eq!(proxy.connections(), 0, "nothing is opened before it is used");
    lock.lock().unwrap().unlock().unwrap();
    let (requests, connections) = (proxy.requests(), proxy.connections());
    for _ in 0..100 {
        lock.lock().unwrap().unlock().unwrap();
    }
    assert_eq!(proxy.requests() - requests, 200);
    assert_eq!(proxy.connections(), connections);
}

#[test]
fn a_lost_reply_costs_one_io_timeout() {
    for fate in [Fate::Lose, Fate::Cut, Fate::Halve] {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let client = client(&proxy);
        let lock = DistLock::new(&client, "k");
        lock.lock().unwrap().unlock().unwrap();
        proxy.rule(Way::Reply, fate.clone(), 1, calls(TRY));
        let start = Instant::now();
        let guard = lock.lock().unwrap();
        assert!(start.elapsed() < IO + SLACK, "{fate:?}: {:?}", start.elapsed());
        assert_eq!(server.ask::<String>(&["GET", "k"]), guard.token(), "{fate:?}");
    }
}

#[test]
fn a_reply_that_belongs_to_another_call_never_locks() {
    let old_answer: &[u8] = b"$23\r\nheld 1764547200000000 1\r\n";
    for bytes in
        [&b"+PONG\r\n"[..], b"+OK\r\n", old_answer, b"$27\r\nheld 1764547200000000 1 999\r\n", b"$-1\r\n", b":1\r\n"]
    {
        let bytes: &'static [u8] = Vec::leak(bytes.to_vec());
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let client = client(&proxy);
        let lock = DistLock::new(&client, "k");
        lock.lock().unwrap().unlock().unwrap();
        let _: () = server.ask(&["SET", "k", "somebody", "PX", "60000"]);
        proxy.rule(Way::Reply, Fate::Precede(bytes), 1, calls(TRY));
        let error = lock.try_lock().unwrap_err();
        assert!(error.is_taken(), "{:?}: {error:?}", String::from_utf8_lossy(bytes));
        // And every time: not Redis, or a proxy that is out of step.
        proxy.rule(Way::Reply, Fate::Precede(bytes), usize::MAX, calls(TRY));
        let error = lock.try_lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error:?}");
        proxy.pass();
        assert!(lock.try_lock().unwrap_err().is_taken());
    }
}

#[test]
fn replies_that_never_come_whole_end_a_wait_in_its_time() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let lock = DistLock::new(&client(&proxy), "k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Reply, Fate::Halve, usize::MAX, calls(TRY));
    for d in [Duration::ZERO, Duration::from_millis(400)] {
        let start = Instant::now();
        assert_eq!(lock.try_lock_for(d).unwrap_err().kind(), ErrorKind::Unreachable);
        assert!(start.elapsed() < d + IO + SLACK, "{:?}", start.elapsed());
    }
}

#[test]
fn a_connection_that_timed_out_is_not_used_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    // Both use the same place in the pool.
    let client = ClientOptions::new().io_timeout(IO).max_connections(1).open(proxy.url()).unwrap();
    let (lock, other) = (DistLock::new(&client, "k"), DistLock::new(&client, "other"));
    lock.lock().unwrap().unlock().unwrap();
    for round in 0..3 {
        let connections = proxy.connections();
        proxy.rule(Way::Reply, Fate::Hold, 1, calls(TRY));
        assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
        // Its answer arrives in the end, and nobody listens.
        assert_eq!(proxy.release(), 1);
        let tries = proxy.count(calls(TRY));
        other.try_lock().unwrap().unlock().unwrap();
        assert_eq!(proxy.count(calls(TRY)), tries + 1, "no answer was one to another call");
        // In the first round the background connects, too.
        assert!(round == 0 || proxy.connections() == connections + 1, "round {round}");
        eventually(Duration::from_secs(5), "the attempt is taken back", || lock.try_lock().is_ok());
    }
}

#[test]
fn a_retry_has_the_token_of_the_first_attempt() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let lock = DistLock::with_options(&client(&proxy), "k", &LockOptions::new().label("same")).unwrap();
    proxy.rule(Way::Reply, Fate::Lose, 2, calls(TRY));
    let guard = lock.lock().unwrap();
    let token = guard.token().to_owned();
    assert_eq!(proxy.count(|request| calls(TRY)(request) && contains(request, token.as_bytes())), 3 + 1);
}
