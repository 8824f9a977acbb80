//! `min_replicas`: a lock counts as acquired when so many replicas have it.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient, LockOptions};

use crate::support::{SLACK, Server, eventually, ways::script_calls};

const IO: Duration = Duration::from_millis(400);

fn client(server: &Server, replicas: u32) -> LockClient {
    ClientOptions::new().io_timeout(IO).min_replicas(replicas).open(server.url()).unwrap()
}

#[test]
fn a_lock_is_on_its_replicas_when_it_is_acquired() {
    let master = Server::start();
    let replica = master.replica();
    let lock = DistLock::new(&client(&master, 1), "k");
    for _ in 0..50 {
        let guard = lock.lock().unwrap();
        assert_eq!(replica.ask::<Option<String>>(&["GET", "k"]).as_deref(), Some(guard.token()));
        guard.unlock().unwrap();
    }
}

#[test]
fn a_lock_that_too_few_replicas_have_is_not_acquired_and_is_free_again() {
    let master = Server::start();
    let replica = master.replica();
    let lock = DistLock::new(&client(&master, 1), "k");
    lock.lock().unwrap().unlock().unwrap();
    replica.pause();
    for d in [Duration::ZERO, Duration::from_millis(600)] {
        let start = Instant::now();
        let error = lock.try_lock_for(d).unwrap_err();
        assert!(start.elapsed() >= d && start.elapsed() < d + IO + SLACK, "{:?}", start.elapsed());
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error:?}");
        assert!(format!("{error:?}").contains("0 of 1 replicas have it"), "{error:?}");
        assert_eq!(master.ask::<Option<String>>(&["GET", "k"]), None, "free again");
    }
    assert!(DistLock::new(&client(&master, 0), "k").try_lock().is_ok(), "who asks for no replica");
    replica.resume();
    assert!(lock.try_lock_for(Duration::from_secs(20)).is_ok());
}

#[test]
fn a_wait_rides_out_replicas_that_are_away() {
    let master = Server::start();
    let replica = master.replica();
    let lock = DistLock::new(&client(&master, 1), "k");
    replica.pause();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.lock().map(drop));
        thread::sleep(2 * IO);
        assert!(!waiting.is_finished());
        replica.resume();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_lock_granted_in_turn_is_on_its_replicas_too() {
    let master = Server::start();
    let replica = master.replica();
    let locks = [1, 1, 1].map(|replicas| DistLock::new(&client(&master, replicas), "k"));
    let end = Instant::now() + Duration::from_secs(2);
    let sections: Vec<usize> = thread::scope(|scope| {
        let work = |lock: &DistLock| {
            let mut sections = 0;
            while Instant::now() < end {
                let guard = lock.lock().unwrap();
                let copy = replica.ask::<Option<String>>(&["GET", "k"]);
                assert_eq!(copy.as_deref(), Some(guard.token()), "on the replica before its guard is here");
                guard.unlock().unwrap();
                sections += 1;
            }
            sections
        };
        let threads: Vec<_> = locks.iter().map(|lock| scope.spawn(move || work(lock))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(sections.iter().all(|&sections| sections > 5), "{sections:?}");
}

#[test]
fn replicas_cost_no_further_call_and_none_where_they_are_not_asked_for() {
    let master = Server::start();
    let _replica = master.replica();
    let calls = || script_calls(&master.ask::<String>(&["INFO", "commandstats"]));
    let waits = || {
        let stats: String = master.ask(&["INFO", "commandstats"]);
        let (_, rest) = stats.split_once("cmdstat_wait:calls=").unwrap();
        rest.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let waited = waits();
    let off = DistLock::new(&client(&master, 0), "k");
    off.lock().unwrap().unlock().unwrap();
    assert_eq!(waits(), waited);
    let on = DistLock::new(&client(&master, 1), "k");
    let before = calls();
    on.lock().unwrap().unlock().unwrap();
    assert_eq!(calls() - before, 2);
    assert_eq!(waits(), waited + 1);
}

#[test]
fn a_user_without_the_right_to_wait_is_denied_and_leaves_no_lock() {
    let master = Server::start();
    let _replica = master.replica();
    let _: () = master.ask(&["ACL", "SETUSER", "w", "on", ">s", "~*", "&*", "+@all", "-wait"]);
    let url = format!("redis://w:s@127.0.0.1:{}/", master.port());
    let client = ClientOptions::new().io_timeout(IO).min_replicas(1).open(url).unwrap();
    assert_eq!(client.ping().unwrap_err().kind(), ErrorKind::Denied);
    let lock = DistLock::with_options(&client, "k", &LockOptions::new().ttl(Duration::from_secs(60))).unwrap();
    assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::Denied);
    eventually(Duration::from_secs(5), "free", || master.ask::<Option<String>>(&["GET", "k"]).is_none());
}

#[cfg(unix)]
#[test]
fn several_nodes_have_no_replicas_to_be_asked() {
    let nodes = ["redis://127.0.0.1:1/", "redis://127.0.0.1:2/", "redis://127.0.0.1:3/"];
    let error = ClientOptions::new().min_replicas(1).open_nodes(nodes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("min_replicas"), "{error}");
}
