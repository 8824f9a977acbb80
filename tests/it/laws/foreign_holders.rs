//! Plain holders that know nothing of this crate: a `SETNX` with an `EXPIRE` after it, and a value that
//! nothing ends.

use std::{thread, time::Instant};

use distlock::LockOptions;

use super::{BOUND, LONG, assert_taken, ms};
use crate::support::ways::every_server;

#[test]
fn a_plain_setnx_and_expire_holder_is_waited_for_and_left_alone() {
    every_server(|way| {
        // The two commands of it, as a fleet of old scripts sends them: in between it has no ttl.
        assert_eq!(way.ask::<Option<String>>(&["SET", "k", "1", "NX"]).as_deref(), Some("OK"));
        let lock = way.lock("k", &LockOptions::new());
        assert_taken(lock.try_lock());
        assert_eq!(way.ask::<i32>(&["PEXPIRE", "k", "700"]), 1);
        let start = Instant::now();
        assert_taken(lock.try_lock_for(ms(200)));
        assert_eq!(way.value("k").as_deref(), Some("1"), "nobody touched it");
        let pttl: i64 = way.ask(&["PTTL", "k"]);
        assert!(pttl > 0 && pttl <= 700, "nor its ttl: {pttl}");
        let guard = lock.lock().unwrap();
        assert!(start.elapsed() >= ms(650) && start.elapsed() < ms(700) + BOUND, "{:?}", start.elapsed());
        // And it finds ours taken.
        assert_eq!(way.ask::<Option<String>>(&["SET", "k", "1", "NX"]), None);
        guard.unlock().unwrap();
        assert_eq!(way.ask::<Option<String>>(&["SET", "k", "1", "NX"]).as_deref(), Some("OK"));
    });
}

#[test]
fn a_value_that_nothing_ends_is_waited_for_until_it_is_deleted_and_never_taken() {
    every_server(|way| {
        let _: () = way.ask(&["SET", "k", "1764547200123"]);
        let lock = way.lock("k", &LockOptions::new());
        assert_taken(lock.try_lock());
        assert_taken(lock.try_lock_for(ms(300)));
        assert_eq!(lock.holder().unwrap().unwrap().remaining, None);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(LONG).map(|guard| guard.token().to_owned()));
            thread::sleep(ms(100));
            assert_eq!(way.value("k").as_deref(), Some("1764547200123"));
            assert_eq!(way.ask::<i64>(&["PTTL", "k"]), -1, "it got no ttl of ours");
            assert!(lock.force_unlock().unwrap(), "an operator takes it away");
            assert!(waiter.join().unwrap().is_ok());
        });
    });
}
