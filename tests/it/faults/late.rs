//! Attempts that the server gets to see when their caller has given up long ago.

use std::time::Duration;

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient, LockOptions, Renew, redis};

use crate::support::proxy::{LEAVE, TRY, calls, contains};
use crate::support::ways::script_calls;
use crate::support::{Fate, Proxy, Server, Way, eventually};

const IO: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(3);

fn client(proxy: &Proxy) -> LockClient {
    ClientOptions::new().io_timeout(IO).open(proxy.url()).unwrap()
}

fn owner(server: &Server) -> Option<String> {
    server.ask(&["GET", "k"])
}

fn fence(server: &Server) -> String {
    server.ask(&["GET", "distlock:fence:{k}"])
}

/// Scripts that the server has executed.
fn tries(server: &Server) -> u64 {
    script_calls(&server.ask::<String>(&["INFO", "commandstats"]))
}

/// Waits until an attempt that is sent now cannot be accepted any more.
fn until_too_late() {
    std::thread::sleep(IO + Duration::from_millis(100));
}

#[test]
fn an_attempt_that_arrives_after_its_caller_gave_up_refuses_itself() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let lock = DistLock::new(&client(&proxy), "k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Request, Fate::Hold, 1, calls(TRY));
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    until_too_late();
    let (fence, executed) = (fence(&server), tries(&server));
    assert_eq!(proxy.release(), 1);
    eventually(LONG, "it is executed", || tries(&server) > executed);
    assert_eq!(owner(&server), None);
    assert_eq!(self::fence(&server), fence, "a refused attempt mints nothing");
}

#[test]
fn an_attempt_that_arrives_just_after_its_caller_gave_up_is_taken_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let lock = DistLock::new(&client(&proxy), "k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Request, Fate::Hold, 1, calls(TRY));
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(proxy.release(), 1);
    eventually(LONG, "taken by the late attempt, and then taken back", || {
        proxy.answered(calls(LEAVE)) > 0 && owner(&server).is_none()
    });
    assert!(lock.try_lock().is_ok());
}

#[test]
fn an_attempt_that_arrives_when_another_has_the_lock_changes_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let lock = DistLock::new(&client(&proxy), "k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Request, Fate::Hold, 1, calls(TRY));
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    let other = DistLock::new(&LockClient::open(server.url()).unwrap(), "k");
    let guard = other.try_lock().unwrap();
    let (fence, executed) = (fence(&server), tries(&server));
    assert_eq!(proxy.release(), 1);
    eventually(LONG, "it is executed, and its final leave", || {
        tries(&server) > executed + 1 && proxy.answered(calls(LEAVE)) > 0
    });
    assert_eq!(owner(&server).as_deref(), Some(guard.token()));
    assert_eq!(self::fence(&server), fence);
    guard.extend(Duration::ZERO).unwrap();
    guard.unlock().unwrap();
}

#[test]
fn a_ghost_of_a_lock_that_was_released_does_not_stay() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let lock = DistLock::new(&client(&proxy), "k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Request, Fate::Hold, 1, calls(TRY));
    // The second attempt wins; the first is under way still.
    let guard = lock.lock().unwrap();
    let token = guard.token().to_owned();
    guard.unlock().unwrap();
    assert_eq!(proxy.release(), 1);
    eventually(LONG, "the final leave", || proxy.answered(calls(LEAVE)) > 0);
    eventually(LONG, "no ghost", || owner(&server).is_none_or(|owner| owner != token));
    assert!(lock.try_lock_for(LONG).is_ok());
}

#[test]
fn a_late_attempt_of_the_holder_never_shortens_its_lease() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let options = LockOptions::new().ttl(Duration::from_secs(2)).renew(Renew::Never);
    let lock = DistLock::with_options(&client(&proxy), "k", &options).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Request, Fate::Hold, 1, calls(TRY));
    let guard = lock.lock().unwrap();
    guard.extend(Duration::from_secs(60)).unwrap();
    assert_eq!(proxy.release(), 1);
    std::thread::sleep(Duration::from_millis(50));
    let left: u64 = server.ask(&["PTTL", "k"]);
    assert!(left > 50_000, "{left}");
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

#[test]
fn a_late_attempt_that_takes_the_lock_again_after_a_del_is_not_the_holders() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let options = LockOptions::new().ttl(Duration::from_secs(1));
    let lock = DistLock::with_options(&client(&proxy), "k", &options).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Request, Fate::Hold, 1, calls(TRY));
    let guard = lock.lock().unwrap();
    let _: () = server.ask(&["DEL", "k"]);
    assert_eq!(proxy.release(), 1);
    assert!(guard.wait_lost_for(Duration::from_secs(1)), "its fence is another");
    drop(guard);
    eventually(LONG, "nobody's lock", || owner(&server).is_none());
}

#[test]
fn a_guarded_write_that_arrives_late_is_executed_only_under_its_own_hold() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = client(&proxy);
    let lock = DistLock::new(&client, "k");
    let data = || server.ask::<Option<String>>(&["GET", "data"]);
    for released in [false, true] {
        let _: () = server.ask(&["DEL", "data"]);
        let guard = lock.lock().unwrap();
        guard.exec(redis::pipe().get("warm")).unwrap();
        proxy.rule(Way::Request, Fate::Hold, 1, |request| contains(request, b"data"));
        let error = guard.exec(redis::pipe().set("data", "late")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
        assert!(error.to_string().contains("may yet be"), "{error}");
        // Its own hold, or that of a successor.
        let guard = if released {
            guard.unlock().unwrap();
            lock.lock().unwrap()
        } else {
            guard
        };
        let executed = tries(&server);
        assert_eq!(proxy.release(), 1);
        eventually(LONG, "it is executed", || tries(&server) > executed);
        assert_eq!(data().as_deref(), if released { None } else { Some("late") });
        guard.unlock().unwrap();
    }
}

#[test]
fn a_take_back_never_ends_a_hold_that_was_resumed() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(Duration::from_millis(400)).open(proxy.url()).unwrap();
    let options = LockOptions::new().ttl(Duration::from_secs(2));
    let lock = DistLock::with_options(&client, "k", &options).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    // Won at the second attempt: what the first may still do is to be taken back.
    proxy.rule(Way::Reply, Fate::Cut, 1, calls(TRY));
    let guard = lock.lock().unwrap();
    let other = LockClient::open(server.url()).unwrap();
    let theirs = DistLock::with_options(&other, "k", &options).unwrap().resume(guard.token()).unwrap();
    assert_eq!(guard.extend(Duration::ZERO).unwrap_err().kind(), ErrorKind::Lost);
    drop(guard);
    assert!(!theirs.wait_lost_for(Duration::from_secs(3)));
    theirs.unlock().unwrap();
}

#[test]
fn a_late_copy_of_a_resume_takes_nothing_from_the_guard_of_its_retry() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = client(&proxy);
    let options = LockOptions::new().ttl(Duration::from_secs(1));
    let lock = DistLock::with_options(&client, "k", &options).unwrap();
    // Held up until its caller has given up and asked again; or cut, and sent again by ourselves.
    for (way, fate) in [(Way::Request, Fate::Hold), (Way::Reply, Fate::Cut)] {
        let token = lock.lock().unwrap().into_token().unwrap();
        proxy.rule(way, fate.clone(), 1, calls(TRY));
        let guard = lock.resume(&token).unwrap_or_else(|e| {
            assert_eq!(e.kind(), ErrorKind::Unreachable, "{fate:?}: {e:?}");
            lock.resume(&token).unwrap()
        });
        assert_eq!(proxy.release(), usize::from(fate == Fate::Hold));
        assert!(!guard.wait_lost_for(Duration::from_secs(2)), "{fate:?}");
        guard.unlock().unwrap();
    }
}

#[test]
fn what_redis_said_was_lost_is_not_covered_though_a_late_attempt_took_it_again() {
    let server = Server::start();
    let lock = DistLock::new(&LockClient::open(server.url()).unwrap(), "k");
    let guard = lock.lock().unwrap();
    let token = guard.token().to_owned();
    let _: () = server.ask(&["DEL", "k"]);
    assert_eq!(guard.extend(Duration::ZERO).unwrap_err().kind(), ErrorKind::Lost);
    let _: () = server.ask(&["SET", "k", &token, "PX", "30000"]);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn a_lease_counts_from_before_its_request_was_sent() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let delay = Duration::from_millis(300);
    let ttl = Duration::from_secs(2);
    let options = LockOptions::new().ttl(ttl).renew(Renew::Never);
    let client = ClientOptions::new().io_timeout(LONG).open(proxy.url()).unwrap();
    let lock = DistLock::with_options(&client, "k", &options).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    for way in [Way::Request, Way::Reply] {
        proxy.rule(way, Fate::Hold, 1, calls(TRY));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.lock().unwrap());
            eventually(LONG, "held in the proxy", || proxy.held() > 0);
            std::thread::sleep(delay);
            proxy.release();
            let guard = waiting.join().unwrap();
            assert!(guard.remaining() < ttl - delay, "{way:?}: {:?}", guard.remaining());
            guard.unlock().unwrap();
        });
    }
}

#[test]
fn a_hold_is_given_away_only_when_no_attempt_of_it_can_come_late_any_more() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let lock = DistLock::new(&client(&proxy), "k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Request, Fate::Hold, 1, calls(TRY));
    // The second attempt wins; the first is under way still.
    let token = lock.lock().unwrap().into_token().unwrap();
    DistLock::new(&LockClient::open(server.url()).unwrap(), "k").resume(&token).unwrap().unlock().unwrap();
    let executed = tries(&server);
    assert_eq!(proxy.release(), 1);
    eventually(LONG, "it is executed", || tries(&server) > executed);
    assert_eq!(owner(&server), None);
}

#[test]
fn a_grant_that_came_when_its_lease_was_over_is_taken_back_and_its_token_not_used_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    // Connections of our own have a limit below every ttl.
    let pool = redis::Client::open(proxy.url()).unwrap();
    let pool = distlock::r2d2::Pool::builder().max_size(2).test_on_check_out(false).build(pool).unwrap();
    let ttl = Duration::from_secs(1);
    let options = LockOptions::new().ttl(ttl).label("late");
    let lock = DistLock::with_options(&LockClient::from_pool(pool), "k", &options).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    // Executed so late that the key outlives the lease.
    proxy.rule(Way::Request, Fate::Delay(3 * ttl / 10), 1, calls(TRY));
    proxy.rule(Way::Reply, Fate::Hold, 1, calls(TRY));
    std::thread::scope(|scope| {
        let start = std::time::Instant::now();
        let waiting = scope.spawn(|| lock.lock().unwrap());
        eventually(LONG, "granted", || proxy.held() > 0);
        let late = owner(&server).unwrap();
        std::thread::sleep(ttl.saturating_sub(start.elapsed()));
        assert_eq!(proxy.release(), 1);
        let guard = waiting.join().unwrap();
        assert_ne!(guard.token(), late);
        eventually(LONG, "taken back", || proxy.answered(calls(LEAVE)) > 0);
        guard.extend(Duration::ZERO).unwrap();
        assert_eq!(owner(&server).as_deref(), Some(guard.token()));
        // And it has its place among the threads of its client.
        let asked = proxy.count(calls(TRY));
        assert!(lock.try_lock().unwrap_err().is_taken());
        assert_eq!(proxy.count(calls(TRY)), asked);
    });
}

#[test]
fn what_an_attempt_took_without_an_answer_is_the_next_threads() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let io = Duration::from_millis(300);
    let client = ClientOptions::new().io_timeout(io).open(proxy.url()).unwrap();
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Reply, Fate::Hold, 1, calls(TRY));
    std::thread::scope(|scope| {
        let head = scope.spawn(|| lock.try_lock_for(io / 3).map(drop));
        eventually(LONG, "granted", || proxy.held() > 0);
        let next = scope.spawn(|| lock.lock().unwrap());
        let took = owner(&server);
        assert_eq!(head.join().unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
        let guard = next.join().unwrap();
        assert_eq!(Some(guard.token()), took.as_deref());
        guard.unlock().unwrap();
        // Also after it: a copy of that attempt may come late.
        eventually(LONG, "the final leave", || proxy.answered(calls(LEAVE)) > 0);
    });
}
