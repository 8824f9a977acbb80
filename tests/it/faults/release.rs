//! Giving back when Redis does not cooperate.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient, LockOptions, Renew};

use crate::support::proxy::{RELEASE, TRY, calls};
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually};

const IO: Duration = Duration::from_millis(200);

fn client(server: &Server) -> LockClient {
    ClientOptions::new().io_timeout(IO).open(server.url()).unwrap()
}

#[test]
fn unlock_on_a_silent_server_is_bounded_and_goes_on_in_the_background() {
    let server = Server::start();
    let lock = DistLock::new(&client(&server), "k");
    let guard = lock.lock().unwrap();
    server.pause();
    let start = Instant::now();
    guard.unlock().expect("the lease is good: the section was covered");
    assert!(start.elapsed() < IO + SLACK, "{:?}", start.elapsed());
    server.resume();
    eventually(Duration::from_secs(3), "released", || server.ask::<Option<String>>(&["GET", "k"]).is_none());
}

#[test]
fn unlock_on_a_silent_server_after_the_lease_is_an_error() {
    let server = Server::start();
    let options = LockOptions::new().ttl(Duration::from_millis(300));
    let lock = DistLock::with_options(&client(&server), "k", &options).unwrap();
    let guard = lock.lock().unwrap();
    server.pause();
    assert!(guard.wait_lost_for(Duration::from_secs(3)));
    let start = Instant::now();
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert!(start.elapsed() < IO + SLACK, "{:?}", start.elapsed());
}

#[test]
fn a_section_that_ended_inside_its_lease_was_covered_however_long_the_release_takes() {
    let server = Server::start();
    let ttl = Duration::from_millis(1000);
    let options = LockOptions::new().ttl(ttl).renew(Renew::Never);
    let io = Duration::from_millis(500);
    let client = ClientOptions::new().io_timeout(io).open(server.url()).unwrap();
    let guard = DistLock::with_options(&client, "k", &options).unwrap().lock().unwrap();
    server.pause();
    assert!(!guard.wait_lost_for(guard.remaining() - io / 2));
    let ends = Instant::now() + guard.remaining();
    guard.unlock().expect("the lease was good when the section ended");
    assert!(Instant::now() > ends, "it was over by the time that the release was given up");
}

#[test]
fn guards_that_are_dropped_while_the_server_is_known_to_be_down_do_not_wait_each() {
    let mut server = Server::start();
    let client = client(&server);
    let guards: Vec<_> = (0..100).map(|i| DistLock::new(&client, format!("k{i}")).lock().unwrap()).collect();
    server.kill();
    let start = Instant::now();
    drop(guards);
    assert!(start.elapsed() < 10 * IO, "{:?}", start.elapsed());
}

#[test]
fn guards_that_are_dropped_while_the_server_is_silent_do_not_wait_each() {
    let server = Server::start();
    let client = client(&server);
    let guards: Vec<_> = (0..100).map(|i| DistLock::new(&client, format!("k{i}")).lock().unwrap()).collect();
    server.pause();
    let start = Instant::now();
    drop(guards);
    assert!(start.elapsed() < 10 * IO, "{:?}", start.elapsed());
    server.resume();
    eventually(Duration::from_secs(5), "all released", || server.ask::<Vec<String>>(&["KEYS", "k*"]).is_empty());
}

#[test]
fn the_client_may_go_before_a_release_is_done() {
    let server = Server::start();
    let client = client(&server);
    let guard = DistLock::new(&client, "k").lock().unwrap();
    server.pause();
    drop(client);
    guard.unlock().unwrap();
    server.resume();
    eventually(Duration::from_secs(3), "released", || server.ask::<Option<String>>(&["GET", "k"]).is_none());
}

#[test]
fn a_release_that_never_comes_through_leaves_the_key_to_its_ttl() {
    let server = Server::start();
    let options = LockOptions::new().ttl(Duration::from_millis(500)).renew(Renew::Never);
    let lock = DistLock::with_options(&client(&server), "k", &options).unwrap();
    let guard = lock.lock().unwrap();
    server.pause();
    drop(guard);
    thread::sleep(Duration::from_millis(600));
    server.resume();
    eventually(Duration::from_secs(2), "gone", || server.ask::<Option<String>>(&["GET", "k"]).is_none());
}

#[test]
fn a_release_that_fails_hides_no_panic_and_leaves_no_queue_locked() {
    let mut server = Server::start();
    let client = client(&server);
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    let guard = lock.lock().unwrap();
    server.kill();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = guard;
        std::panic::panic_any("the user's own");
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"the user's own"));
    // Not "taken" by a guard that is gone.
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    server.restart();
    assert!(lock.try_lock_for(Duration::from_secs(5)).is_ok());
}

#[test]
fn a_release_in_the_background_is_tried_until_it_comes_through() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(IO).open(proxy.url()).unwrap();
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    let guard = lock.lock().unwrap();
    let (before, failing) = (proxy.count(calls(RELEASE)), 8);
    proxy.rule(Way::Request, Fate::Cut, failing, calls(RELEASE));
    guard.unlock().expect("the lease is good: the section was covered");
    // Of its own caller there were three or four.
    eventually(Duration::from_secs(5), "released", || server.ask::<Option<String>>(&["GET", "k"]).is_none());
    assert_eq!(proxy.count(calls(RELEASE)) - before, failing + 1);
}

#[test]
fn the_next_thread_asks_only_when_the_release_was_answered() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(Duration::from_secs(5)).open(proxy.url()).unwrap();
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| lock.lock().unwrap().unlock());
        thread::sleep(Duration::from_millis(50));
        proxy.rule(Way::Request, Fate::Hold, 1, calls(RELEASE));
        let tries = proxy.count(calls(TRY));
        let release = scope.spawn(|| guard.unlock());
        eventually(Duration::from_secs(3), "the release is under way", || proxy.held() == 1);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(proxy.count(calls(TRY)), tries);
        proxy.release();
        release.join().unwrap().unwrap();
        next.join().unwrap().unwrap();
        assert_eq!(proxy.count(calls(TRY)), tries + 1, "it was free");
    });
}
