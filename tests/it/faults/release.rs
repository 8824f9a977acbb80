//! Giving back when Redis does not cooperate.

use std::time::{Duration, Instant};

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient, LockOptions, Renew};

use crate::support::{SLACK, Server, eventually};

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
    std::thread::sleep(Duration::from_millis(600));
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
