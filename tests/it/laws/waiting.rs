//! How long a call waits, and what ends a wait.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{Backoff, DistLock, ErrorKind, Interrupt, LockOptions};

use super::{BOUND, LONG, assert_kind, assert_taken, ms, once, takes};
use crate::support::{
    eventually,
    ways::{every_server, every_way},
};

#[test]
fn a_timeout_is_waited_out_and_not_by_much_more() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        let _guard = mine.lock().unwrap();
        // Behind another client, behind this client's own guard, and until a point in time.
        assert_taken(takes(ms(200), || yours.try_lock_for(ms(200))));
        assert_taken(takes(ms(200), || mine.try_lock_for(ms(200))));
        assert_taken(takes(ms(190), || yours.try_lock_until(Instant::now() + ms(200))));
    });
}

#[test]
fn a_wait_of_zero_is_one_attempt() {
    every_server(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &LockOptions::new()));
        // Both know the way and the script by now.
        drop(yours.lock().unwrap());
        let guard = mine.try_lock_for(Duration::ZERO).unwrap();
        let before = way.script_calls();
        assert_taken(yours.try_lock_for(Duration::ZERO));
        assert_eq!(way.script_calls() - before, 1);
        assert_taken(yours.try_lock_until(Instant::now() - ms(1)));
        assert_eq!(way.script_calls() - before, 2);
        drop(guard);
        assert!(yours.try_lock_for(Duration::ZERO).is_ok());
    });
}

#[test]
fn a_try_behind_this_clients_own_guard_asks_nobody() {
    every_server(|way| {
        let lock = way.lock("k", &LockOptions::new());
        let _guard = lock.lock().unwrap();
        let before = way.script_calls();
        assert_taken(lock.try_lock());
        assert_eq!(way.script_calls(), before);
    });
}

#[test]
fn far_deadlines_do_not_overflow() {
    every_way(|way| {
        let lock = way.lock("k", &LockOptions::new().unreachable_after(Duration::MAX));
        let far = Instant::now() + Duration::from_secs(1 << 32);
        for timeout in [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::from_nanos(u64::MAX)] {
            let guard = lock.try_lock_for(timeout).unwrap();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| lock.try_lock_for(timeout).map(drop));
                thread::sleep(ms(10));
                assert!(!waiter.is_finished());
                drop(guard);
                takes(Duration::ZERO, || waiter.join().unwrap()).unwrap();
            });
        }
        let guard = lock.try_lock_until(far).unwrap();
        assert!(!guard.wait_lost_for(Duration::ZERO));
        thread::scope(|scope| {
            let watcher = scope.spawn(|| guard.wait_lost_for(Duration::MAX));
            way.ask::<()>(&["DEL", "k"]);
            assert_kind(guard.extend(Duration::ZERO), ErrorKind::Lost);
            assert!(watcher.join().unwrap());
        });
    });
}

#[test]
fn an_heir_waits_by_its_own_backoff() {
    every_way(|way| {
        let client = way.client();
        let lock = |backoff| DistLock::with_options(&client, "k", &LockOptions::new().backoff(backoff)).unwrap();
        let slow = lock(Backoff::new().spins(0).first_pause(ms(8000)).cap(ms(20_000)));
        let quick = lock(Backoff::new().cap(ms(5)));
        way.ask::<()>(&["SET", "k", "somebody", "PX", "60000"]);
        thread::scope(|scope| {
            let head = scope.spawn(|| slow.try_lock_for(ms(300)).map(drop));
            thread::sleep(ms(100));
            let heir = scope.spawn(|| quick.lock().map(drop));
            assert!(head.join().unwrap().unwrap_err().is_taken());
            way.ask::<()>(&["DEL", "k"]);
            takes(Duration::ZERO, || heir.join().unwrap()).unwrap();
        });
    });
}

#[test]
fn a_wait_longer_than_the_holders_ttl_goes_on() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &LockOptions::new().ttl(ms(300))), way.lock("k", &LockOptions::new()));
        let guard = mine.lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| yours.try_lock_for(LONG).map(|guard| guard.fence()));
            assert!(!guard.wait_lost_for(ms(900)), "renewed");
            assert!(!waiter.is_finished());
            let first = guard.fence();
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap().unwrap() > first);
        });
    });
}

#[test]
fn a_wait_that_outlives_a_lease_gets_the_lock() {
    every_way(|way| {
        let (mine, yours) = (way.lock("k", &once(ms(300))), way.lock("k", &LockOptions::new()));
        let guard = mine.lock().unwrap();
        let start = Instant::now();
        let next = yours.try_lock_for(LONG).unwrap();
        assert!(start.elapsed() < ms(300) + BOUND, "{:?}", start.elapsed());
        assert!(!guard.is_valid(), "invalid before another has it");
        drop(guard);
        next.unlock().unwrap();
    });
}

/// So patient that nothing but a wake-up ends its pauses.
fn patient(interrupt: &Interrupt) -> LockOptions {
    let backoff = Backoff::new().spins(0).cap(Duration::from_secs(30)).first_pause(Duration::from_secs(30));
    LockOptions::new().backoff(backoff).interrupt(interrupt)
}

#[test]
fn an_interrupt_ends_waits_in_the_queue_and_at_its_head_promptly() {
    every_server(|way| {
        let interrupt = Interrupt::new();
        let _guard = way.lock("k", &LockOptions::new()).lock().unwrap();
        let lock = way.lock("k", &patient(&interrupt));
        let before = way.script_calls();
        thread::scope(|scope| {
            let head = scope.spawn(|| lock.try_lock_for(LONG).map(drop));
            eventually(LONG, "the head has asked", || way.script_calls() > before);
            let queued = scope.spawn(|| lock.try_lock_for(LONG).map(drop));
            thread::sleep(ms(50));
            assert!(!head.is_finished() && !queued.is_finished());
            interrupt.interrupt();
            let start = Instant::now();
            assert_kind(head.join().unwrap(), ErrorKind::Interrupted);
            assert_kind(queued.join().unwrap(), ErrorKind::Interrupted);
            assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
        });
    });
}

#[test]
fn an_interrupt_refuses_new_waits_and_no_try() {
    every_way(|way| {
        let interrupt = Interrupt::new();
        let lock = way.lock("k", &patient(&interrupt));
        let held = lock.lock().unwrap();
        interrupt.clone().interrupt();
        assert!(held.is_valid(), "what is held stays held");
        held.unlock().unwrap();
        assert_kind(lock.lock(), ErrorKind::Interrupted);
        assert_kind(lock.try_lock_for(LONG), ErrorKind::Interrupted);
        assert_kind(lock.try_lock_for(Duration::ZERO), ErrorKind::Interrupted);
        assert_kind(lock.try_lock_until(Instant::now() + LONG), ErrorKind::Interrupted);
        lock.try_lock().unwrap().unlock().unwrap();
    });
}

#[test]
fn a_try_does_not_wait_behind_a_thread_that_waits() {
    every_server(|way| {
        let (client, interrupt) = (way.client(), Interrupt::new());
        let waiting = DistLock::with_options(&client, "k", &patient(&interrupt)).unwrap();
        let lock = DistLock::new(&client, "k");
        // The script is known from here on: the head asks once.
        lock.lock().unwrap().unlock().unwrap();
        way.ask::<()>(&["SET", "k", "theirs"]);
        let before = way.script_calls();
        thread::scope(|scope| {
            let head = scope.spawn(|| waiting.try_lock_for(LONG).map(drop));
            eventually(LONG, "the head has asked", || way.script_calls() > before);
            assert_taken(takes(Duration::ZERO, || lock.try_lock()));
            way.ask::<()>(&["DEL", "k"]);
            // It is free, though the head sleeps on.
            takes(Duration::ZERO, || lock.try_lock()).unwrap().unlock().unwrap();
            takes(Duration::ZERO, || lock.try_lock_for(Duration::ZERO)).unwrap().unlock().unwrap();
            assert!(!head.is_finished());
            interrupt.interrupt();
            assert_kind(head.join().unwrap(), ErrorKind::Interrupted);
        });
    });
}

#[test]
fn a_waiter_that_gives_up_leaves_nothing() {
    every_way(|way| {
        let interrupt = Interrupt::new();
        let (mine, yours) = (way.lock("k", &LockOptions::new()), way.lock("k", &patient(&interrupt)));
        let guard = mine.lock().unwrap();
        assert_taken(yours.try_lock_for(ms(60)));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| yours.lock().map(drop));
            thread::sleep(ms(30));
            interrupt.interrupt();
            assert_kind(waiter.join().unwrap(), ErrorKind::Interrupted);
        });
        eventually(ms(1000), "nothing but the holder's", || way.left_over() == ["k"]);
        guard.unlock().unwrap();
        assert_eq!(way.left_over(), [""; 0]);
        mine.try_lock().unwrap().unlock().unwrap();
        yours.try_lock().unwrap().unlock().unwrap();
    });
}

#[test]
fn a_waiter_that_gives_up_does_not_stall_the_next() {
    every_way(|way| {
        let guard = way.lock("k", &LockOptions::new()).lock().unwrap();
        let (client, interrupt) = (way.client(), Interrupt::new());
        let lock = DistLock::new(&client, "k");
        let interrupted = DistLock::with_options(&client, "k", &LockOptions::new().interrupt(&interrupt)).unwrap();
        thread::scope(|scope| {
            // The head gives up by its time, one in the queue by an interrupt, one by its time.
            let head = scope.spawn(|| lock.try_lock_for(ms(200)).map(drop));
            thread::sleep(ms(20));
            let second = scope.spawn(|| interrupted.lock().map(drop));
            let third = scope.spawn(|| lock.try_lock_for(ms(250)).map(drop));
            let last = scope.spawn(|| lock.lock().map(drop));
            thread::sleep(ms(100));
            interrupt.interrupt();
            assert_kind(second.join().unwrap(), ErrorKind::Interrupted);
            assert_kind(head.join().unwrap(), ErrorKind::Taken);
            assert_kind(third.join().unwrap(), ErrorKind::Taken);
            assert!(!last.is_finished());
            guard.unlock().unwrap();
            takes(Duration::ZERO, || last.join().unwrap()).unwrap();
        });
        assert_eq!(way.left_over(), [""; 0]);
    });
}

#[test]
fn a_lock_that_is_freed_during_the_last_pause_is_got_at_the_deadline() {
    every_way(|way| {
        let lock = way.lock("k", &patient(&Interrupt::new()));
        way.ask::<()>(&["SET", "k", "theirs", "PX", "60000"]);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| takes(Duration::ZERO, || lock.try_lock_for(ms(300))).map(drop));
            thread::sleep(ms(100));
            way.ask::<()>(&["DEL", "k"]);
            waiter.join().unwrap().unwrap();
        });
    });
}

#[test]
fn at_its_deadline_a_head_asks_nobody_if_another_thread_waits_behind_it() {
    every_server(|way| {
        let lock = way.lock("k", &patient(&Interrupt::new()));
        lock.lock().unwrap().unlock().unwrap();
        way.ask::<()>(&["SET", "k", "theirs", "PX", "60000"]);
        let before = way.script_calls();
        thread::scope(|scope| {
            let head = scope.spawn(|| lock.try_lock_for(ms(300)).map(drop));
            eventually(LONG, "the head has asked", || way.script_calls() > before);
            let heir = scope.spawn(|| lock.try_lock_for(ms(500)).map(drop));
            assert_kind(head.join().unwrap(), ErrorKind::Taken);
            assert!(!heir.is_finished());
            assert_eq!(way.script_calls() - before, 1);
            // The heir has nobody behind it.
            assert_kind(heir.join().unwrap(), ErrorKind::Taken);
            assert_eq!(way.script_calls() - before, 2);
        });
    });
}

#[test]
fn no_pause_is_longer_than_the_holders_remaining_ttl() {
    every_way(|way| {
        let lock = way.lock("k", &patient(&Interrupt::new()));
        way.ask::<()>(&["SET", "k", "theirs", "PX", "300"]);
        drop(takes(Duration::ZERO, || lock.try_lock_for(LONG)).unwrap());
    });
}
