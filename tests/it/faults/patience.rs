//! How long `lock()` goes on without Redis.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, ErrorKind, LockOptions};

use crate::support::proxy::{TRY, calls};
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually};

#[test]
fn patience_begins_when_a_guard_of_this_client_is_gone() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(Duration::from_millis(100)).open(proxy.url()).unwrap();
    let patience = Duration::from_millis(300);
    let lock = DistLock::with_options(&client, "k", &LockOptions::new().unreachable_after(patience)).unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let error = lock.lock().unwrap_err();
                    (error.kind(), Instant::now())
                })
            })
            .collect();
        // While it is held here Redis is not asked, and nothing is missing.
        thread::sleep(2 * patience);
        proxy.refuse(true);
        let gone = Instant::now();
        drop(guard);
        for waiter in waiting {
            let (kind, at) = waiter.join().unwrap();
            assert_eq!(kind, ErrorKind::Unreachable);
            assert!(at >= gone + patience, "{:?}", at - gone);
            assert!(at < gone + patience + SLACK, "{:?}", at - gone);
        }
    });
}

#[test]
fn what_failed_before_another_thread_got_the_lock_is_not_why_it_is_not_got() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(Duration::from_millis(150)).open(proxy.url()).unwrap();
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.rule(Way::Reply, Fate::Hold, 1, calls(TRY));
    thread::scope(|scope| {
        let first = scope.spawn(|| lock.lock().unwrap());
        eventually(Duration::from_secs(3), "asked", || proxy.held() == 1);
        let second = scope.spawn(|| lock.try_lock_for(Duration::from_millis(400)).map(drop));
        // At its second attempt.
        let _guard = first.join().unwrap();
        assert_eq!(second.join().unwrap().unwrap_err().kind(), ErrorKind::Taken);
    });
}
