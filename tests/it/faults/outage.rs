//! Servers that are down, silent or half dead: every call ends in its time, with the right word for it.

use std::{
    error::Error as _,
    io::Write,
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, Error, ErrorKind, LockClient, LockOptions};

use crate::support::proxy::{TRY, calls};
use crate::support::server::NOBODY;
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually};

pub(super) const IO: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) fn client(url: impl AsRef<str>) -> LockClient {
    ClientOptions::new().io_timeout(IO).open(url.as_ref()).unwrap()
}

fn impatient(client: &LockClient, key: &str) -> DistLock {
    DistLock::with_options(client, key, &LockOptions::new().unreachable_after(PATIENCE)).unwrap()
}

/// `try_lock_for(d)` fails within d and one I/O timeout, and not before d.
#[track_caller]
pub(super) fn ends_in_time(lock: &DistLock, d: Duration) -> Error {
    let start = Instant::now();
    let error = lock.try_lock_for(d).unwrap_err();
    let took = start.elapsed();
    assert!(took >= d, "{took:?}: {error:?}");
    assert!(took < d + IO + SLACK, "{took:?}: {error:?}");
    error
}

/// A listener that accepts and says no more than `words`.
fn mumbler(words: &'static [u8]) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(words);
            open.push(stream);
        }
    });
    port
}

#[test]
fn a_refused_port_is_reported_at_once_with_its_cause() {
    let lock = DistLock::new(&client(format!("redis://127.0.0.1:{}/", NOBODY)), "k");
    let start = Instant::now();
    let error = lock.try_lock().unwrap_err();
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("refused"), "{cause}");
    assert!(!error.to_string().contains("refused"), "the cause is in source() alone: {error}");
}

#[test]
fn try_lock_for_on_a_silent_server_ends_in_time() {
    let server = Server::start();
    let client = client(server.url());
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    server.pause();
    for d in [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(500)] {
        assert_eq!(ends_in_time(&lock, d).kind(), ErrorKind::Unreachable, "{d:?}");
    }
    server.resume();
    eventually(Duration::from_secs(5), "free again", || lock.try_lock().is_ok());
}

#[test]
fn try_lock_for_on_a_listener_that_never_answers_ends_in_time_also_with_a_login() {
    let half_an_answer = b"+OK\r\n+OK\r\n+OK\r\n*2\r\n$10\r\n17645";
    for words in [&b""[..], b"+OK\r\n", b"+O", half_an_answer] {
        let words: &'static [u8] = Vec::leak(words.to_vec());
        let lock = DistLock::new(&client(format!("redis://user:secret@127.0.0.1:{}/3", mumbler(words))), "k");
        for d in [Duration::ZERO, Duration::from_millis(300)] {
            assert_eq!(ends_in_time(&lock, d).kind(), ErrorKind::Unreachable, "{:?}", String::from_utf8_lossy(words));
        }
    }
}

#[test]
fn try_lock_for_on_a_refusing_server_ends_in_time() {
    let lock = DistLock::new(&client(format!("redis://127.0.0.1:{}/", NOBODY)), "k");
    assert_eq!(ends_in_time(&lock, Duration::from_millis(300)).kind(), ErrorKind::Unreachable);
}

#[test]
fn something_else_that_listens_there_is_a_protocol_error_at_once() {
    let lock =
        DistLock::new(&client(format!("redis://127.0.0.1:{}/", mumbler(b"HTTP/1.1 400 Bad Request\r\n\r\n"))), "k");
    let start = Instant::now();
    assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::Protocol);
    assert!(start.elapsed() < IO + SLACK);
}

#[test]
fn an_old_failure_refuses_no_new_wait() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(Duration::from_secs(5)).open(proxy.url()).unwrap();
    let options = LockOptions::new().unreachable_after(Duration::ZERO);
    let lock = DistLock::with_options(&client, "k", &options).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    proxy.refuse(true);
    assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::Unreachable);
    proxy.refuse(false);
    proxy.rule(Way::Reply, Fate::Hold, 1, calls(TRY));
    thread::scope(|scope| {
        let asking = scope.spawn(|| lock.lock().map(drop));
        eventually(Duration::from_secs(3), "asking", || proxy.held() == 1);
        let waiting = scope.spawn(|| lock.lock().map(drop));
        let brief = lock.try_lock_for(Duration::from_millis(100)).unwrap_err();
        assert!(brief.is_taken(), "nobody has said otherwise since it began: {brief:?}");
        assert_eq!(proxy.release(), 1);
        asking.join().unwrap().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn endless_patience_never_gives_up() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let options = LockOptions::new().unreachable_after(Duration::MAX);
    let lock = DistLock::with_options(&client(proxy.url()), "k", &options).unwrap();
    proxy.refuse(true);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| lock.lock().unwrap().unlock())).collect();
        thread::sleep(2 * PATIENCE);
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        proxy.refuse(false);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap().unwrap());
    });
}

#[test]
fn zero_patience_fails_at_the_first_error() {
    let client = client(format!("redis://127.0.0.1:{}/", NOBODY));
    let options = LockOptions::new().unreachable_after(Duration::ZERO);
    let lock = DistLock::with_options(&client, "k", &options).unwrap();
    let start = Instant::now();
    assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::Unreachable);
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
}

#[test]
fn all_waiters_of_a_key_give_up_together_and_say_why() {
    let lock = impatient(&client(format!("redis://127.0.0.1:{}/", NOBODY)), "k");
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let start = Instant::now();
                    (lock.lock().unwrap_err(), start.elapsed())
                })
            })
            .collect();
        for waiter in waiters {
            let (error, took) = waiter.join().unwrap();
            assert_eq!(error.kind(), ErrorKind::Unreachable);
            assert!(error.source().unwrap().to_string().contains("refused"), "{error:?}");
            assert!(took >= PATIENCE, "{took:?}");
            assert!(took < PATIENCE + SLACK, "{took:?}");
        }
    });
}

#[test]
fn a_wait_behind_a_holder_is_not_an_outage() {
    let server = Server::start();
    let client = client(server.url());
    let mine = impatient(&client, "k");
    let theirs = impatient(&self::client(server.url()), "k");
    let guard = mine.lock().unwrap();
    thread::scope(|scope| {
        let (local, distant) = (scope.spawn(|| mine.lock().map(drop)), scope.spawn(|| theirs.lock().map(drop)));
        thread::sleep(3 * PATIENCE);
        assert!(!local.is_finished() && !distant.is_finished());
        guard.unlock().unwrap();
        local.join().unwrap().unwrap();
        distant.join().unwrap().unwrap();
    });
}

#[test]
fn patience_starts_again_with_a_useful_answer() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let lock = impatient(&client(proxy.url()), "k");
    let _: () = server.ask(&["SET", "k", "somebody", "PX", "60000"]);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.lock());
        // Outages that are each shorter than the patience, and together longer.
        for _ in 0..4 {
            proxy.refuse(true);
            thread::sleep(PATIENCE / 2);
            proxy.refuse(false);
            thread::sleep(PATIENCE / 2);
        }
        assert!(!waiting.is_finished());
        let _: () = server.ask(&["DEL", "k"]);
        drop(waiting.join().unwrap().unwrap());
    });
}

#[test]
fn taken_is_never_the_word_for_an_outage_nor_an_outage_the_word_for_taken() {
    let mut server = Server::start();
    let client = client(server.url());
    let lock = DistLock::new(&client, "k");
    let guard = DistLock::new(&self::client(server.url()), "k").lock().unwrap();
    assert!(ends_in_time(&lock, Duration::from_millis(100)).is_taken());
    server.kill();
    assert_eq!(ends_in_time(&lock, Duration::from_millis(100)).kind(), ErrorKind::Unreachable);
    server.restart();
    drop(guard);
    assert!(lock.try_lock_for(Duration::from_secs(5)).is_ok());
}
