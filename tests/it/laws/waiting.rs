//! Waits: their order, their ends, and what they leave.

use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use distlock::{Backoff, DistLock, ErrorKind, Interrupt, LockOptions, OptionalExt};

use super::{LONG, lock};
use crate::support::SLACK;
use crate::support::ways::on_every_way;

const SOON: Duration = Duration::from_millis(80);

#[test]
fn a_timed_wait_ends_at_its_time_with_taken() {
    on_every_way(|way| {
        let client = way.client();
        let guard = DistLock::new(&client, "k").lock().unwrap();
        // Behind its own process, and behind another.
        for waiting in [DistLock::new(&client, "k"), lock(way, "k")] {
            for d in [Duration::ZERO, SOON] {
                let start = Instant::now();
                assert!(waiting.try_lock_for(d).unwrap_err().is_taken(), "{}", way.name);
                assert!(start.elapsed() >= d && start.elapsed() < d + SLACK, "{}: {:?}", way.name, start.elapsed());
                let start = Instant::now();
                assert!(waiting.try_lock_until(Instant::now() + d).optional().unwrap().is_none());
                assert!(start.elapsed() >= d && start.elapsed() < d + SLACK, "{}: {:?}", way.name, start.elapsed());
            }
            assert!(waiting.try_lock_until(Instant::now() - SOON).unwrap_err().is_taken());
        }
        guard.unlock().unwrap();
        assert!(!lock(way, "k").is_locked().unwrap(), "{}: a waiter that gave up leaves nothing", way.name);
    });
}

#[test]
fn a_wait_of_no_time_takes_a_free_lock() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        assert!(lock.try_lock_for(Duration::ZERO).is_ok(), "{}", way.name);
        assert!(lock.try_lock_until(Instant::now()).is_ok(), "{}", way.name);
    });
}

#[test]
fn far_deadlines_do_not_overflow() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        for d in [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::from_secs(1 << 40)] {
            let guard = lock.try_lock_for(d).unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| lock.try_lock_for(d).map(drop));
                thread::sleep(Duration::from_millis(10));
                guard.unlock().unwrap();
                waiting.join().unwrap().unwrap();
            });
        }
    });
}

#[test]
fn threads_of_one_client_get_the_lock_in_the_order_in_which_they_asked() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        let order = Mutex::new(Vec::new());
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            for i in 0..5 {
                let (lock, order) = (&lock, &order);
                scope.spawn(move || {
                    let _guard = lock.lock().unwrap();
                    order.lock().unwrap().push(i);
                });
                // Enters the queue long before the next one.
                thread::sleep(Duration::from_millis(20));
            }
            guard.unlock().unwrap();
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4], "{}", way.name);
    });
}

#[test]
fn an_interrupt_ends_every_wait_and_refuses_new_ones_but_not_try_lock() {
    on_every_way(|way| {
        let interrupt = Interrupt::new();
        let options = LockOptions::new().interrupt(&interrupt);
        let client = way.client();
        let locks = [&client, &client, &way.client()].map(|c| DistLock::with_options(c, "k", &options).unwrap());
        let guard = DistLock::new(&way.client(), "k").lock().unwrap();
        // A waiter that nothing else would wake: its own process holds.
        let own = DistLock::with_options(&client, "own", &options).unwrap();
        let _held = own.lock().unwrap();
        thread::scope(|scope| {
            let behind = scope.spawn(|| own.lock().map(drop));
            // A head, one behind it in the gate, a head of another client; timed and not.
            let waiting: Vec<_> = locks
                .iter()
                .flat_map(|lock| {
                    [scope.spawn(|| lock.lock().map(drop)), scope.spawn(|| lock.try_lock_for(LONG).map(drop))]
                })
                .collect();
            thread::sleep(SOON);
            let start = Instant::now();
            interrupt.interrupt();
            for wait in waiting {
                assert_eq!(wait.join().unwrap().unwrap_err().kind(), ErrorKind::Interrupted, "{}", way.name);
            }
            assert_eq!(behind.join().unwrap().unwrap_err().kind(), ErrorKind::Interrupted, "{}", way.name);
            assert!(start.elapsed() < SLACK, "{}: {:?}", way.name, start.elapsed());
        });
        guard.unlock().unwrap();
        assert_eq!(locks[0].lock().unwrap_err().kind(), ErrorKind::Interrupted);
        assert_eq!(locks[0].try_lock_for(LONG).unwrap_err().kind(), ErrorKind::Interrupted);
        assert!(locks[0].try_lock().is_ok(), "{}: a clean-up can still lock", way.name);
    });
}

#[test]
fn a_waiter_that_gives_up_does_not_stall_the_next() {
    on_every_way(|way| {
        let interrupt = Interrupt::new();
        let client = way.client();
        let (patient, nervous) = (
            DistLock::new(&client, "k"),
            DistLock::with_options(&client, "k", &LockOptions::new().interrupt(&interrupt)).unwrap(),
        );
        let guard = lock(way, "k").lock().unwrap();
        thread::scope(|scope| {
            // Heads of the gate that give up one way or the other, and whoever comes behind them.
            let gone = [scope.spawn(|| patient.try_lock_for(SOON).map(drop)), scope.spawn(|| nervous.lock().map(drop))];
            thread::sleep(Duration::from_millis(20));
            let behind =
                [scope.spawn(|| patient.lock().map(drop)), scope.spawn(|| patient.try_lock_for(LONG).map(drop))];
            thread::sleep(SOON);
            interrupt.interrupt();
            for wait in gone {
                assert!(wait.join().unwrap().is_err(), "{}", way.name);
            }
            guard.unlock().unwrap();
            for wait in behind {
                wait.join().unwrap().unwrap_or_else(|e| panic!("{}: {e:?}", way.name));
            }
        });
        assert!(!patient.is_locked().unwrap());
    });
}

#[test]
fn waiters_ask_no_more_often_than_their_backoff_says() {
    let server = crate::support::Server::start();
    let slow = Backoff::new().spins(0).first_pause(Duration::from_millis(100)).cap(Duration::from_millis(100));
    let client = distlock::LockClient::open(server.url()).unwrap();
    let waiting = DistLock::with_options(&client, "k", &LockOptions::new().backoff(slow)).unwrap();
    let _: () = server.ask(&["SET", "k", "somebody"]);
    let calls = || -> u64 {
        let stats: String = server.ask(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default().to_owned();
        line.split(['=', ',']).nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| waiting.try_lock_for(Duration::from_secs(1)).unwrap_err());
        }
    });
    assert!(calls() <= 15, "four threads, one head, ten pauses: {}", calls());
}

#[test]
fn waiting_threads_hold_no_connection() {
    let server = crate::support::Server::start();
    let client = distlock::ClientOptions::new().max_connections(1).open(server.url()).unwrap();
    let foreign: Vec<_> = (0..10).map(|i| format!("k{i}")).collect();
    foreign.iter().for_each(|key| server.ask(&["SET", key, "somebody"]));
    thread::scope(|scope| {
        for key in &foreign {
            let lock = DistLock::new(&client, key);
            scope.spawn(move || lock.try_lock_for(Duration::from_millis(500)).unwrap_err());
        }
        let lock = DistLock::new(&client, "mine");
        for _ in 0..20 {
            lock.lock().unwrap().unlock().unwrap();
        }
    });
}
