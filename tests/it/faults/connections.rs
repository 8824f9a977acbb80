//! Connections of our own: each call has its own limit on them, and a server that became a replica is left.

use std::{
    io::{BufReader, Write},
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient, LockOptions};

use crate::support::proxy::{LEAVE, TRY, calls, contains};
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually, read_message};

/// A listener that answers each step of a login, each only after so long, and nothing after it.
fn drawl(pause: Duration) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut requests = BufReader::new(stream.try_clone().unwrap());
            for answer in ["+OK\r\n", "+OK\r\n", "+OK\r\n", "*2\r\n$10\r\n1764547200\r\n$1\r\n0\r\n"] {
                let _ = read_message(&mut requests);
                thread::sleep(pause);
                if stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
            open.push(stream);
        }
    });
    port
}

#[test]
fn a_login_and_the_call_that_it_is_for_have_one_limit_for_all_their_steps() {
    let io = Duration::from_millis(800);
    for pause in [8 * io / 10, 2 * io / 10] {
        let url = format!("redis://user:secret@127.0.0.1:{}/3", drawl(pause));
        let lock = DistLock::new(&ClientOptions::new().io_timeout(io).open(url).unwrap(), "k");
        let start = Instant::now();
        assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
        assert!(start.elapsed() < io + SLACK, "{pause:?}: {:?}", start.elapsed());
    }
}

#[test]
fn each_call_has_its_own_limit_on_a_connection_that_it_shares() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let io = Duration::from_secs(3);
    let client = ClientOptions::new().io_timeout(io).max_connections(1).open(proxy.url()).unwrap();
    let brief = Duration::from_millis(300);
    let (patient, hasty) = (
        DistLock::new(&client, "patient"),
        DistLock::with_options(&client, "hasty", &LockOptions::new().ttl(brief)).unwrap(),
    );
    patient.lock().unwrap().unlock().unwrap();
    hasty.lock().unwrap().unlock().unwrap();
    // A call may take half its ttl, which is over long before this answer comes; or the timeout.
    proxy.rule(Way::Reply, Fate::Delay(brief + SLACK), 1, calls(TRY));
    patient.lock().unwrap().unlock().unwrap();
    assert_eq!(proxy.connections(), 1);
    server.pause();
    let start = Instant::now();
    assert_eq!(hasty.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    assert!(start.elapsed() < brief / 2 + SLACK, "{:?}", start.elapsed());
}

/// Two calls at the same time, and so on two connections.
fn both(client: &LockClient, proxy: &Proxy) {
    proxy.rule(Way::Reply, Fate::Hold, 2, calls(TRY));
    thread::scope(|scope| {
        let calls = ["a", "b"].map(|key| scope.spawn(move || DistLock::new(client, key).lock().unwrap().unlock()));
        eventually(Duration::from_secs(3), "both are asked", || proxy.held() == 2);
        proxy.release();
        calls.into_iter().for_each(|call| call.join().unwrap().unwrap());
    });
}

#[test]
fn no_connection_to_a_demoted_master_is_used_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().max_connections(2).open(proxy.url()).unwrap();
    both(&client, &proxy);
    both(&client, &proxy);
    assert_eq!(proxy.connections(), 2);
    let _: () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(DistLock::new(&client, "a").try_lock().unwrap_err().kind(), ErrorKind::Unavailable);
    // By now it may be another server that this address leads to.
    let _: () = server.ask(&["REPLICAOF", "NO", "ONE"]);
    both(&client, &proxy);
    assert_eq!(proxy.connections(), 4, "the one that had the answer, and the one that waited in the pool");
}

#[test]
fn only_what_was_sent_is_taken_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(Duration::from_millis(150)).open(proxy.url()).unwrap();
    let (sent, unsent) = (DistLock::new(&client, "sent"), DistLock::new(&client, "unsent"));
    sent.lock().unwrap().unlock().unwrap();
    proxy.refuse(true);
    // Over the connection of before; and then there is none.
    for lock in [&sent, &unsent] {
        assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    }
    proxy.refuse(false);
    let leaves = |key: &'static [u8]| proxy.count(|request| calls(LEAVE)(request) && contains(request, key));
    eventually(Duration::from_secs(5), "a take-back", || leaves(b"{sent}") > 0);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(leaves(b"{unsent}"), 0);
}
