//! Pools that are full, sockets that accept nobody, answers in pieces: every wait has its bound.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, ErrorKind, Interrupt, LockClient, LockOptions, r2d2, redis};

use super::outage::{IO, client, ends_in_time};
use crate::support::proxy::{TRY, calls, contains};
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually};

/// Leads connections on to a server, and its answers back byte by byte, with a pause before each.
fn dripping(server: &Server, pause: Duration, drips: &'static AtomicBool) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (port, upstream) = (listener.local_addr().unwrap().port(), server.port());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let up = std::net::TcpStream::connect(("127.0.0.1", upstream)).unwrap();
            client.set_nodelay(true).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), up.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            let (mut from, mut to) = (up, client);
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    for byte in &bytes[..count] {
                        if drips.load(SeqCst) {
                            thread::sleep(pause);
                        }
                        if to.write_all(&[*byte]).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}

#[test]
fn an_answer_that_comes_in_pieces_ends_in_time() {
    static DRIPS: AtomicBool = AtomicBool::new(false);
    let server = Server::start();
    let port = dripping(&server, IO / 4, &DRIPS);
    let lock = DistLock::new(&client(format!("redis://127.0.0.1:{port}/")), "k");
    lock.lock().unwrap().unlock().unwrap();
    DRIPS.store(true, SeqCst);
    for d in [Duration::ZERO, Duration::from_millis(300)] {
        let start = Instant::now();
        assert_eq!(lock.try_lock_for(d).unwrap_err().kind(), ErrorKind::Unreachable);
        assert!(start.elapsed() < d + IO + SLACK, "{d:?}: {:?}", start.elapsed());
    }
}

#[test]
fn a_full_pool_is_exhausted_only_if_the_server_answers_meanwhile() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let io = Duration::from_millis(600);
    let client = ClientOptions::new().io_timeout(io).max_connections(1).open(proxy.url()).unwrap();
    let lock = |key, ttl| DistLock::with_options(&client, key, &LockOptions::new().ttl(ttl)).unwrap();
    let (slow, brief) = (DistLock::new(&client, "slow"), Duration::from_millis(300));
    let (kept, other) = (lock("kept", brief), lock("other", brief));
    other.lock().unwrap().unlock().unwrap();
    // Its renewals are answered, on a connection besides the pool.
    let guard = kept.lock().unwrap();
    let waits_for_the_only_connection = || {
        thread::scope(|scope| {
            let held = proxy.held();
            let stuck = scope.spawn(|| slow.try_lock());
            eventually(Duration::from_secs(2), "a held reply", || proxy.held() > held);
            // For half its ttl, which is over long before.
            let start = Instant::now();
            let error = other.try_lock().unwrap_err();
            assert!(start.elapsed() < brief / 2 + SLACK, "{:?}", start.elapsed());
            assert_eq!(stuck.join().unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
            error.kind()
        })
    };
    proxy.rule(Way::Reply, Fate::Hold, usize::MAX, |request| contains(request, b"slow"));
    assert_eq!(waits_for_the_only_connection(), ErrorKind::Exhausted);
    drop(guard);
    // A silent server fills every pool: that is not what is wrong.
    assert_eq!(waits_for_the_only_connection(), ErrorKind::Unreachable);
}

#[test]
fn try_lock_for_on_a_pool_that_is_in_use_ends_in_time() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(IO).max_connections(1).open(proxy.url()).unwrap();
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Reply, Fate::Lose, usize::MAX, |request| contains(request, b"slow"));
    let stop = Interrupt::new();
    thread::scope(|scope| {
        for i in 0..4 {
            let slow =
                DistLock::with_options(&client, format!("slow{i}"), &LockOptions::new().interrupt(&stop)).unwrap();
            scope.spawn(move || slow.lock().map(drop).unwrap_err());
        }
        eventually(Duration::from_secs(3), "in use", || proxy.count(|request| contains(request, b"slow")) > 2);
        for d in [Duration::ZERO, Duration::from_millis(300)] {
            let start = Instant::now();
            let _ = lock.try_lock_for(d);
            assert!(start.elapsed() < d + IO + SLACK, "{d:?}: {:?}", start.elapsed());
        }
        stop.interrupt();
    });
}

#[test]
fn a_unix_socket_that_accepts_nobody_ends_in_time() {
    let path = std::env::temp_dir().join(format!("distlock-{}-full.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // Its queue is filled by connections that nobody accepts; the last one waits for ever.
    let (filled, fill) = (std::sync::Arc::new(AtomicUsize::new(0)), path.clone());
    let counting = std::sync::Arc::clone(&filled);
    thread::spawn(move || {
        let mut open = Vec::new();
        while let Ok(stream) = std::os::unix::net::UnixStream::connect(&fill) {
            open.push(stream);
            counting.fetch_add(1, SeqCst);
        }
    });
    let mut before = usize::MAX;
    eventually(Duration::from_secs(20), "full", || {
        thread::sleep(Duration::from_millis(50));
        let now = filled.load(SeqCst);
        std::mem::replace(&mut before, now) == now
    });
    let lock = DistLock::new(&client(format!("unix://{}", path.display())), "k");
    for d in [Duration::ZERO, Duration::from_millis(300)] {
        assert_eq!(ends_in_time(&lock, d).kind(), ErrorKind::Unreachable);
    }
    drop(listener);
    let _ = std::fs::remove_file(&path);
}

#[test]
fn a_given_pool_that_its_application_uses_up_is_exhausted() {
    let server = Server::start();
    let pool = redis::Client::open(server.url()).unwrap();
    let pool = r2d2::Pool::builder().max_size(1).test_on_check_out(false).build(pool).unwrap();
    let client = ClientOptions::new().io_timeout(IO).open_pool(pool.clone()).unwrap();
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    let taken = pool.get().unwrap();
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(ends_in_time(&lock, Duration::from_millis(300)).kind(), ErrorKind::Exhausted);
    drop(taken);
    assert!(lock.try_lock().is_ok());
}

#[test]
fn a_given_connection_that_is_out_of_step_never_locks() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let pool = redis::Client::open(proxy.url()).unwrap();
    let pool = r2d2::Pool::builder().max_size(1).test_on_check_out(false).build(pool).unwrap();
    let lock = DistLock::new(&LockClient::from_pool(pool), "k");
    lock.lock().unwrap().unlock().unwrap();
    // From here on every answer is that of the call before: it cannot be discarded, only seen through.
    proxy.rule(Way::Reply, Fate::Precede(b"+PONG\r\n"), 1, calls(TRY));
    for _ in 0..3 {
        assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Protocol);
    }
    // What those attempts took is taken back.
    eventually(Duration::from_secs(9), "nobody's", || server.ask::<Option<String>>(&["GET", "k"]).is_none());
}

#[test]
fn a_silent_server_delays_no_other_client_of_the_process() {
    let (silent, well) = (Server::start(), Server::start());
    let (stuck, free) = (client(silent.url()), client(well.url()));
    let lock = DistLock::new(&free, "k");
    lock.lock().unwrap().unlock().unwrap();
    silent.pause();
    thread::scope(|scope| {
        for i in 0..8 {
            let lock = DistLock::new(&stuck, format!("k{i}"));
            scope.spawn(move || lock.try_lock_for(Duration::from_secs(1)).unwrap_err());
        }
        let start = Instant::now();
        for _ in 0..50 {
            lock.lock().unwrap().unlock().unwrap();
        }
        assert!(start.elapsed() < Duration::from_millis(700), "{:?}", start.elapsed());
    });
}
