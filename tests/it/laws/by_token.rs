//! A manager of services, and its holds, which a token of the caller's names instead of a guard.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, ErrorKind, LockManager, LockOptions};

use super::{BOUND, LONG, assert_kind, assert_taken, ms};
use crate::support::{
    Fate, Server, Way as Direction, eventually,
    proxy::{RELEASE, TRY, calls},
    ways::{Way, every_server, every_server_through_a_proxy, every_way},
};

const MINUTE: Duration = Duration::from_secs(60);

/// A manager with one service, `s`, on this way.
fn manager(way: &Way) -> LockManager {
    let manager = LockManager::new();
    manager.add("s", &way.client()).unwrap();
    manager
}

#[test]
fn a_service_is_found_by_its_name_from_every_thread() {
    let servers = [Server::start(), Server::start()];
    let manager = LockManager::new();
    thread::scope(|scope| {
        for (name, server) in ["orders", "reports"].iter().zip(&servers) {
            let manager = manager.clone();
            scope.spawn(move || manager.add(name, &distlock::LockClient::open(server.url()).unwrap()).unwrap());
        }
    });
    assert_eq!(manager.services().iter().map(|name| &**name).collect::<Vec<_>>(), ["orders", "reports"]);
    thread::scope(|scope| {
        for (name, server) in ["orders", "reports"].iter().zip(&servers) {
            let manager = &manager;
            scope.spawn(move || {
                let guard = manager.mutex(name, "k").unwrap().lock().unwrap();
                assert_eq!(server.ask::<String>(&["GET", "k"]), guard.token());
                let brief = LockOptions::new().ttl(ms(50));
                let guard = manager.mutex_with_options(name, "brief", &brief).unwrap().lock().unwrap();
                assert!(guard.remaining() <= ms(50));
                assert_eq!(format!("{:?}", manager.client(name).unwrap()).matches("127.0.0.1").count(), 1);
            });
        }
    });
}

#[test]
fn locks_of_one_service_share_their_client() {
    every_way(|way| {
        let manager = manager(way);
        let guard = manager.mutex("s", "k").unwrap().lock().unwrap();
        // Taken by this very process: nobody is asked.
        assert_taken(manager.mutex("s", "k").unwrap().try_lock());
        guard.unlock().unwrap();
    });
}

#[test]
fn an_unknown_service_is_an_error_that_names_it_and_those_that_there_are() {
    let manager = LockManager::new();
    let error = assert_kind(manager.client("orders"), ErrorKind::InvalidOption);
    assert_eq!(error.to_string(), r#"there is no service "orders": none was added"#);
    let client = distlock::LockClient::open("redis://127.0.0.1:1/").unwrap();
    for service in ["reports", "files"] {
        manager.add(service, &client).unwrap();
    }
    let text = r#"there is no service "orders": known are "files", "reports""#;
    let errors = [
        assert_kind(manager.client("orders"), ErrorKind::InvalidOption),
        assert_kind(manager.mutex("orders", "k"), ErrorKind::InvalidOption),
        assert_kind(manager.mutex_with_options("orders", "k", &LockOptions::new()), ErrorKind::InvalidOption),
        assert_kind(manager.add_lock("orders", "k", "t", MINUTE), ErrorKind::InvalidOption),
        assert_kind(manager.release_lock("orders", "k", "t"), ErrorKind::InvalidOption),
        assert_kind(manager.is_held_by("orders", "k", "t"), ErrorKind::InvalidOption),
    ];
    for error in errors {
        assert_eq!(error.to_string(), text);
    }
    (0..50).for_each(|i| manager.add(format!("s{i:02}"), &client).unwrap());
    let text = manager.client("orders").unwrap_err().to_string();
    assert!(text.len() < 300 && text.ends_with("32 more"), "{text}");
}

#[test]
fn a_service_that_is_there_is_not_replaced() {
    let (first, second) = (Server::start(), Server::start());
    let manager = LockManager::new();
    manager.add("s", &distlock::LockClient::open(first.url()).unwrap()).unwrap();
    let error =
        assert_kind(manager.add("s", &distlock::LockClient::open(second.url()).unwrap()), ErrorKind::InvalidOption);
    assert!(error.to_string().contains(r#""s" is there already"#), "{error}");
    assert!(manager.add_lock("s", "k", "t", MINUTE).unwrap());
    assert_eq!(first.ask::<i32>(&["EXISTS", "k"]), 1);
}

#[test]
fn a_hold_by_token_and_a_guard_exclude_each_other() {
    every_way(|way| {
        let (manager, lock) = (manager(way), way.lock("k", &LockOptions::new()));
        assert!(manager.add_lock("s", "k", "mine", MINUTE).unwrap());
        assert_eq!(way.value("k").as_deref(), Some("mine"), "the token as it is");
        assert_taken(lock.try_lock());
        assert_taken(manager.mutex("s", "k").unwrap().try_lock());
        assert!(!manager.add_lock("s", "k", "yours", MINUTE).unwrap());
        assert!(manager.release_lock("s", "k", "mine").unwrap());
        let guard = lock.try_lock().unwrap();
        assert!(!manager.add_lock("s", "k", "mine", MINUTE).unwrap());
        assert_eq!(way.value("k").as_deref(), Some(guard.token()), "nothing was changed");
        guard.unlock().unwrap();
    });
}

#[test]
fn the_same_token_has_the_lock_again_and_never_for_less_than_it_had() {
    every_way(|way| {
        let manager = manager(way);
        let pttl = || way.ask::<i64>(&["PTTL", "k"]);
        assert!(manager.add_lock("s", "k", "mine", ms(5000)).unwrap());
        assert!(manager.add_lock("s", "k", "mine", MINUTE).unwrap());
        assert!(pttl() > 50_000, "{}", pttl());
        assert!(manager.add_lock("s", "k", "mine", ms(100)).unwrap());
        assert!(pttl() > 40_000, "{}", pttl());
        assert!(manager.release_lock("s", "k", "mine").unwrap());
        assert_eq!(way.left_over(), Vec::<String>::new());
    });
}

#[test]
fn release_lock_ends_the_hold_of_its_token_and_no_other() {
    every_way(|way| {
        let manager = manager(way);
        assert!(!manager.release_lock("s", "k", "mine").unwrap(), "nobody's");
        assert!(manager.add_lock("s", "k", "mine", MINUTE).unwrap());
        for other in ["yours", "min", "mine ", "MINE"] {
            assert!(!manager.release_lock("s", "k", other).unwrap(), "{other:?}");
        }
        assert_eq!(way.value("k").as_deref(), Some("mine"));
        assert!(manager.release_lock("s", "k", "mine").unwrap());
        assert!(!manager.release_lock("s", "k", "mine").unwrap(), "once");
        let guard = manager.mutex("s", "k").unwrap().lock().unwrap();
        assert!(!manager.release_lock("s", "k", "mine").unwrap());
        assert!(guard.extend(Duration::ZERO).is_ok());
    });
}

#[test]
fn a_hold_by_token_is_not_renewed() {
    every_way(|way| {
        let (manager, lock) = (manager(way), way.lock("k", &LockOptions::new()));
        let start = Instant::now();
        assert!(manager.add_lock("s", "k", "mine", ms(600)).unwrap());
        drop(lock.try_lock_for(LONG).unwrap());
        assert!(start.elapsed() >= ms(590) && start.elapsed() < ms(600) + BOUND, "{:?}", start.elapsed());
        assert!(!manager.release_lock("s", "k", "mine").unwrap());
    });
}

#[test]
fn observers_are_told_whether_a_token_holds() {
    every_way(|way| {
        let (manager, observer) = (manager(way), manager(way));
        assert!(!observer.is_held_by("s", "k", "mine").unwrap());
        assert!(manager.add_lock("s", "k", "mine", MINUTE).unwrap());
        assert!(observer.is_held_by("s", "k", "mine").unwrap());
        assert!(!observer.is_held_by("s", "k", "yours").unwrap());
        assert!(manager.release_lock("s", "k", "mine").unwrap());
        let guard = manager.mutex("s", "k").unwrap().lock().unwrap();
        assert!(observer.is_held_by("s", "k", guard.token()).unwrap(), "a guard has a token, too");
    });
}

#[test]
fn a_release_by_token_hands_the_lock_to_whoever_waits() {
    every_server(|way| {
        if !way.waits_in_turn() {
            return;
        }
        let manager = manager(way);
        assert!(manager.add_lock("s", "k", "mine", MINUTE).unwrap());
        let lock = way.lock("k", &LockOptions::new());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.lock().map(|guard| guard.unlock()).unwrap());
            eventually(LONG, "it waits in the queue", || {
                let channel: Vec<String> = way.ask(&["HVALS", "distlock:waiters:{k}"]);
                channel.iter().any(|waiter| waiter.contains("distlock:client:"))
            });
            let published = || way.ask::<String>(&["INFO", "commandstats"]).contains("cmdstat_publish:calls=1,");
            assert!(!published());
            assert!(manager.release_lock("s", "k", "mine").unwrap());
            waiter.join().unwrap().unwrap();
            assert!(published(), "it was told");
        });
    });
}

#[test]
fn resume_makes_a_guard_of_a_hold_by_token_with_a_fence_that_is_renewed() {
    every_way(|way| {
        let manager = manager(way);
        let before = manager.mutex("s", "k").unwrap().lock().unwrap();
        let fence = before.fence();
        before.unlock().unwrap();
        assert!(manager.add_lock("s", "k", "mine", ms(900)).unwrap());
        let lock = way.lock("k", &LockOptions::new().ttl(ms(900)));
        assert_kind(lock.resume("yours"), ErrorKind::Lost);
        let guard = lock.resume("mine").unwrap();
        assert!(guard.fence() > fence && guard.token() == "mine");
        assert!(!guard.wait_lost_for(ms(1500)), "renewed");
        assert!(manager.is_held_by("s", "k", "mine").unwrap());
        guard.unlock().unwrap();
        assert!(!manager.is_held_by("s", "k", "mine").unwrap());
    });
}

/// What then holds: one hold, which both believe to be theirs. The first release ends it for both, and says
/// `true` to the one and `false` to the other.
#[test]
fn two_calls_with_one_token_at_once_are_one_owner_whose_hold_ends_with_the_first_release() {
    every_way(|way| {
        let managers = [manager(way), manager(way)];
        let both = |call: &(dyn Fn(&LockManager) -> bool + Sync)| {
            thread::scope(|scope| {
                let calls = managers.each_ref().map(|manager| scope.spawn(move || call(manager)));
                calls.map(|call| call.join().unwrap())
            })
        };
        assert_eq!(both(&|manager| manager.add_lock("s", "k", "same", MINUTE).unwrap()), [true, true]);
        assert_eq!(way.value("k").as_deref(), Some("same"));
        assert!(!managers[0].add_lock("s", "k", "other", MINUTE).unwrap(), "others are excluded all the same");
        let mut released = both(&|manager| manager.release_lock("s", "k", "same").unwrap());
        released.sort_unstable();
        assert_eq!(released, [false, true]);
        assert!(managers[1].add_lock("s", "k", "other", MINUTE).unwrap());
        assert!(!managers[0].release_lock("s", "k", "same").unwrap(), "and what comes late ends nobody else's");
    });
}

#[test]
fn what_cannot_be_a_hold_is_refused_before_anything_is_asked() {
    let manager = LockManager::new();
    manager.add("s", &distlock::LockClient::open("redis://127.0.0.1:1/").unwrap()).unwrap();
    let long = "x".repeat(257);
    let table = [
        ("k", "", MINUTE, "token of 0 bytes: 1 to 256 are possible"),
        ("k", &long, MINUTE, "token of 257 bytes: 1 to 256"),
        ("k", "a\nb", MINUTE, "a token with a line break"),
        ("k", "t", ms(9), "ttl of 9ms: 10ms to 365 days"),
        ("k", "t", Duration::MAX, "10ms to 365 days"),
        ("distlock:fence:{k}", "t", MINUTE, "which is some lock's bookkeeping"),
    ];
    for (key, token, ttl, text) in table {
        let error = assert_kind(manager.add_lock("s", key, token, ttl), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_kind(manager.release_lock("s", "k", ""), ErrorKind::InvalidOption);
    assert_kind(manager.is_held_by("s", "distlock:queue", "t"), ErrorKind::InvalidOption);
    assert_kind(manager.add_lock("s", "k", "t", MINUTE), ErrorKind::Unreachable);
    assert_kind(manager.release_lock("s", "k", "t"), ErrorKind::Unreachable);
}

#[test]
fn after_an_answer_that_was_lost_the_same_token_finds_out() {
    let server = Server::start();
    let proxy = crate::support::Proxy::to(server.port());
    let client = distlock::ClientOptions::new().io_timeout(ms(300)).open(proxy.url()).unwrap();
    let manager = LockManager::new();
    manager.add("s", &client).unwrap();
    DistLock::new(&client, "warm").lock().unwrap().unlock().unwrap();
    proxy.rule(Direction::Reply, Fate::Lose, 1, calls(TRY));
    let error = manager.add_lock("s", "k", "mine", MINUTE).unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(server.ask::<String>(&["GET", "k"]), "mine", "it was executed");
    assert!(manager.add_lock("s", "k", "mine", MINUTE).unwrap(), "not blocked by itself");
    proxy.rule(Direction::Reply, Fate::Lose, 1, calls(RELEASE));
    assert!(manager.release_lock("s", "k", "mine").unwrap_err().is_transient());
    assert!(!manager.release_lock("s", "k", "mine").unwrap(), "the first call has released it");
    assert_eq!(server.ask::<i32>(&["EXISTS", "k"]), 0);
}

#[test]
fn a_connection_that_breaks_under_a_hold_by_token_costs_no_answer() {
    every_server_through_a_proxy(|way, proxy| {
        let manager = manager(way);
        assert!(manager.add_lock("s", "warm", "w", MINUTE).unwrap());
        proxy.rule(Direction::Reply, Fate::Cut, 1, calls(TRY));
        let start = Instant::now();
        assert!(manager.add_lock("s", "k", "mine", MINUTE).unwrap());
        // Nobody could take back what the first copy takes after the release: it is outlived, which takes the
        // I/O timeout of a second.
        assert!(start.elapsed() >= ms(950) && start.elapsed() < ms(2300) + BOUND, "{:?}", start.elapsed());
        assert!(manager.release_lock("s", "k", "mine").unwrap());
        assert_eq!(way.value("k"), None);
    });
}
