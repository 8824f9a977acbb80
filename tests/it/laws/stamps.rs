//! What a lock of the timestamp protocol promises; the fake has none.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{
    ClientOptions, ErrorKind, Interrupt, LockClient, StampClock, StampUnit, TimestampLock, TimestampLockGuard,
    TimestampOptions,
};

use super::{BOUND, LONG, assert_kind, ms};
use crate::support::{
    Fate, Proxy, Server, Way as Direction,
    proxy::{STAMP, UNSTAMP, calls},
    server::NOBODY,
    ways::{Way, every_server},
};

const NEW: TimestampOptions = TimestampOptions::new();

/// A lock of a client of its own.
fn lock(way: &Way, options: &TimestampOptions) -> TimestampLock {
    TimestampLock::with_options(&way.client(), "k", options).unwrap()
}

#[track_caller]
fn assert_taken(outcome: distlock::Result<TimestampLockGuard>) {
    assert_kind(outcome, ErrorKind::Taken);
}

/// The server's clock, ms.
fn now(way: &Way) -> u64 {
    let (seconds, micros): (u64, u64) = way.ask(&["TIME"]);
    seconds * 1000 + micros / 1000
}

#[test]
fn a_stamp_excludes_others_until_it_is_released() {
    every_server(|way| {
        let (mine, yours) = (lock(way, &NEW), lock(way, &NEW));
        let guard = mine.lock().unwrap();
        assert!(guard.is_valid() && guard.remaining() > Duration::from_secs(29) && guard.key() == "k");
        assert_taken(yours.try_lock());
        assert_taken(mine.try_lock());
        assert_taken(yours.try_lock_for(ms(100)));
        guard.unlock().unwrap();
        assert_eq!(way.value("k"), None);
        drop(yours.try_lock().unwrap());
        assert!(way.ask::<Vec<String>>(&["KEYS", "*"]).is_empty(), "a drop releases; no fences, no queue");
    });
}

#[test]
fn the_value_is_the_end_of_the_hold_in_the_unit_of_the_fleet() {
    every_server(|way| {
        let table = [
            (NEW, 1, 0),
            (NEW.clock(StampClock::Client), 1, 0),
            (NEW.digits(7), 1, 1000),
            (NEW.unit(StampUnit::Seconds), 1000, 1000),
            (NEW.unit(StampUnit::Seconds).clock(StampClock::Client), 1000, 1000),
        ];
        for (options, unit, more) in table {
            let before = now(way);
            let guard = lock(way, &options).lock().unwrap();
            let value: u64 = way.value("k").unwrap().parse().unwrap();
            assert_eq!(value, guard.stamp());
            // What is known of the server's clock is behind it by the way of an answer.
            let (least, most) = (before + 30_000 - 500, now(way) + 30_000 + more + 1);
            assert!((least..=most).contains(&(value * unit)), "{options:?}: {value}, {least} to {most}");
            let pttl: i64 = way.ask(&["PTTL", "k"]);
            assert!(pttl > 29_000 && pttl <= 31_000, "the key goes with its stamp: {pttl}");
            guard.unlock().unwrap();
        }
        let guard = lock(way, &NEW.digits(7)).lock().unwrap();
        assert_eq!(guard.stamp() % 1000, 7);
        drop(guard);
        let _guard = lock(way, &NEW.keep_key()).lock().unwrap();
        assert_eq!(way.ask::<i64>(&["PTTL", "k"]), -1, "as old clients leave it");
    });
}

#[test]
fn a_stamp_of_an_old_client_is_waited_for_and_taken_when_it_is_over() {
    every_server(|way| {
        for unit in [StampUnit::Milliseconds, StampUnit::Seconds] {
            let lock = lock(way, &NEW.unit(unit));
            // It crashed, and left no ttl. A second counts to its end, also with a fraction as Python writes it.
            let (over, text) = match unit {
                StampUnit::Seconds => {
                    let last = now(way) / 1000 + 1;
                    ((last + 1) * 1000, format!("{last}.25"))
                }
                _ => {
                    let last = now(way) + 700;
                    (last + 1, last.to_string())
                }
            };
            let _: () = way.ask(&["SET", "k", &text]);
            assert_taken(lock.try_lock());
            assert_taken(lock.try_lock_for(ms(50)));
            assert_eq!(way.value("k").as_deref(), Some(&*text), "losers write nothing");
            let guard = lock.try_lock_for(LONG).unwrap();
            let at = now(way);
            assert!(at >= over && at < over + BOUND.as_millis() as u64, "{unit:?}: {at}, {over}");
            assert_eq!(way.value("k"), Some(guard.stamp().to_string()));
            guard.unlock().unwrap();
            assert_eq!(way.value("k"), None);
        }
    });
}

#[test]
fn a_release_deletes_ones_own_stamp_that_is_not_over_and_nothing_else() {
    every_server(|way| {
        // Another's.
        let guard = lock(way, &NEW).lock().unwrap();
        let other = (guard.stamp() + 1).to_string();
        let _: () = way.ask(&["SET", "k", &other]);
        assert_kind(guard.unlock(), ErrorKind::Lost);
        assert_eq!(way.value("k").as_deref(), Some(&*other));
        let _: i32 = way.ask(&["DEL", "k"]);
        // Its own, and over: somebody may have read it, and be about to take it.
        let guard = lock(way, &NEW.ttl(ms(100)).keep_key()).lock().unwrap();
        let stamp = guard.stamp();
        while now(way) <= stamp {
            thread::sleep(ms(10));
        }
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert_kind(guard.unlock(), ErrorKind::Lost);
        assert_eq!(way.value("k"), Some(stamp.to_string()));
        // Taken by the next one; and the key with a ttl is gone by then.
        let guard = lock(way, &NEW.ttl(ms(100))).lock().unwrap();
        thread::sleep(ms(150));
        assert_eq!(way.value("k"), None);
        let next = lock(way, &NEW).lock().unwrap();
        drop(guard);
        assert_eq!(way.value("k"), Some(next.stamp().to_string()), "a late drop touches nothing");
        next.unlock().unwrap();
    });
}

#[test]
fn threads_of_several_clients_take_turns_and_count_exactly() {
    const SECTIONS: u64 = 15;
    every_server(|way| {
        thread::scope(|scope| {
            for client in 0..2 {
                let lock = lock(way, &NEW.digits(client));
                for _ in 0..2 {
                    let lock = lock.clone();
                    scope.spawn(move || {
                        for _ in 0..SECTIONS {
                            let guard = lock.try_lock_for(LONG).unwrap();
                            let n: u64 = way.value("n").map_or(0, |n| n.parse().unwrap());
                            let _: () = way.ask(&["SET", "n", &(n + 1).to_string()]);
                            guard.unlock().unwrap();
                        }
                    });
                }
            }
        });
        assert_eq!(way.value("n"), Some((4 * SECTIONS).to_string()));
    });
}

#[test]
fn a_wait_for_a_stamp_ends_at_its_deadline_and_by_an_interrupt() {
    every_server(|way| {
        let interrupt = Interrupt::new();
        let (holder, waiter) = (lock(way, &NEW), lock(way, &NEW.interrupt(&interrupt)));
        let _guard = holder.lock().unwrap();
        super::takes(ms(300), || assert_taken(waiter.try_lock_for(ms(300))));
        super::takes(Duration::ZERO, || assert_taken(waiter.try_lock_for(Duration::ZERO)));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.lock().map(drop));
            thread::sleep(ms(50));
            interrupt.interrupt();
            assert_kind(waiting.join().unwrap(), ErrorKind::Interrupted);
        });
        assert_kind(waiter.lock(), ErrorKind::Interrupted);
        assert_taken(waiter.try_lock());
    });
}

#[test]
fn a_key_that_is_no_stamp_is_never_taken() {
    every_server(|way| {
        let lock = lock(way, &NEW);
        for value in ["somebody", "", "-1", "0x10", "1e3", "nan", "12 ", "d1.0"] {
            let _: () = way.ask(&["SET", "k", value]);
            assert_taken(lock.try_lock());
            assert_eq!(way.value("k").as_deref(), Some(value));
        }
        let _: () = way.ask(&["SET", "k", &"9".repeat(400)]);
        assert_taken(lock.try_lock());
        let _: i32 = way.ask(&["DEL", "k"]);
        let _: i32 = way.ask(&["RPUSH", "k", "a list"]);
        assert_kind(lock.try_lock(), ErrorKind::WrongType);
        assert_kind(lock.lock(), ErrorKind::WrongType);
    });
}

#[test]
fn what_cannot_be_asked_is_an_error_in_time() {
    let client = LockClient::open(format!("redis://127.0.0.1:{NOBODY}/")).unwrap();
    let lock = TimestampLock::with_options(&client, "k", &NEW.unreachable_after(ms(200))).unwrap();
    assert_kind(lock.try_lock(), ErrorKind::Unreachable);
    super::takes(ms(200), || assert_kind(lock.lock(), ErrorKind::Unreachable));
    super::takes(ms(300), || assert_kind(lock.try_lock_for(ms(300)), ErrorKind::Unreachable));
    let reserved = TimestampLock::new(&client, "distlock:fence:{k}");
    assert_kind(reserved.try_lock(), ErrorKind::InvalidOption);
    assert_kind(TimestampLock::with_options(&client, "distlock:queue", &NEW), ErrorKind::InvalidOption);
}

#[cfg(feature = "testing")]
#[test]
fn a_fake_says_that_it_has_no_stamps() {
    let (client, _fake) = distlock::testing::client();
    let lock = TimestampLock::new(&client, "k");
    let error = assert_kind(lock.lock(), ErrorKind::InvalidOption);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("needs one Redis server"), "{cause}");
}

/// A server behind a proxy, with a lock whose connection has been used before.
fn proxied(options: &TimestampOptions) -> (Server, Proxy, TimestampLock) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(ms(300)).open(proxy.url()).unwrap();
    let lock = TimestampLock::with_options(&client, "k", options).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    (server, proxy, lock)
}

#[test]
fn an_attempt_whose_answer_was_lost_costs_what_its_stamp_lasts_and_no_more() {
    let (server, proxy, lock) = proxied(&NEW.ttl(ms(900)));
    let before = proxy.count(calls(STAMP));
    proxy.rule(Direction::Reply, Fate::Cut, 1, calls(STAMP));
    let start = Instant::now();
    assert_kind(lock.try_lock(), ErrorKind::Unreachable);
    assert_eq!(proxy.count(calls(STAMP)), before + 1, "sent once");
    assert_eq!(server.ask::<i32>(&["EXISTS", "k"]), 1, "and executed");
    assert_taken(lock.try_lock());
    drop(lock.try_lock_for(LONG).unwrap());
    assert!(start.elapsed() >= ms(800) && start.elapsed() < ms(900) + BOUND, "{:?}", start.elapsed());
}

#[test]
fn a_release_is_sent_once_whatever_becomes_of_its_answer() {
    for fate in [Fate::Cut, Fate::Lose] {
        let (server, proxy, lock) = proxied(&NEW);
        let guard = lock.lock().unwrap();
        let before = proxy.count(calls(UNSTAMP));
        proxy.rule(Direction::Reply, fate, 1, calls(UNSTAMP));
        guard.unlock().expect("it was covered");
        assert_eq!(proxy.count(calls(UNSTAMP)), before + 1, "a second copy could meet an equal stamp of another");
        assert_eq!(server.ask::<i32>(&["EXISTS", "k"]), 0);
    }
}

#[test]
fn a_release_waits_no_longer_than_an_io_timeout_and_leaves_the_rest_to_the_stamp() {
    let (server, _proxy, lock) = proxied(&NEW.ttl(Duration::from_secs(3)));
    let (first, second) = (lock.lock().unwrap(), Instant::now());
    server.pause();
    super::takes(ms(250), || first.unlock().expect("good by the clock"));
    server.resume();
    drop(lock.try_lock_for(LONG).unwrap());
    assert!(second.elapsed() < Duration::from_secs(3) + BOUND, "{:?}", second.elapsed());
}
