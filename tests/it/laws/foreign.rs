//! Keys that other clients wrote: a plain `SET NX PX` with compare-and-delete shares the lock.

use std::{thread, time::Duration};

use super::{LONG, lock};
use crate::support::ways::on_every_way;

const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

#[test]
fn a_foreign_holder_excludes_us_until_it_releases() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        let set: bool = way.ask(&["SET", "k", "theirs", "NX", "PX", "60000"]);
        assert!(set);
        assert!(lock.try_lock().unwrap_err().is_taken(), "{}", way.name);
        let holder = lock.holder().unwrap().unwrap();
        assert_eq!((holder.token.as_str(), holder.label), ("theirs", None));
        assert!(holder.remaining.unwrap() > Duration::from_secs(50));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.try_lock_for(LONG).map(drop));
            thread::sleep(Duration::from_millis(60));
            assert_eq!(way.ask::<i32>(&["EVAL", DELETE, "1", "k", "theirs"]), 1);
            waiting.join().unwrap().unwrap();
        });
    });
}

#[test]
fn we_exclude_a_foreign_client_and_it_cannot_delete_what_is_ours() {
    on_every_way(|way| {
        let guard = lock(way, "k").lock().unwrap();
        let set: Option<String> = way.ask(&["SET", "k", "theirs", "NX", "PX", "60000"]);
        assert_eq!(set, None, "{}", way.name);
        assert_eq!(way.ask::<i32>(&["EVAL", DELETE, "1", "k", "theirs"]), 0);
        assert_eq!(way.ask::<String>(&["GET", "k"]), guard.token());
        guard.unlock().unwrap();
        let set: bool = way.ask(&["SET", "k", "theirs", "NX", "PX", "60000"]);
        assert!(set);
    });
}

#[test]
fn a_foreign_key_without_a_ttl_is_waited_for_and_not_slept_on() {
    on_every_way(|way| {
        let lock = lock(way, "k");
        let _: () = way.ask(&["SET", "k", "theirs"]);
        assert!(lock.try_lock_for(Duration::from_millis(100)).unwrap_err().is_taken(), "{}", way.name);
        assert_eq!(lock.holder().unwrap().unwrap().remaining, None);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.try_lock_for(LONG).map(drop));
            thread::sleep(Duration::from_millis(60));
            let _: () = way.ask(&["DEL", "k"]);
            waiting.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_foreign_key_with_an_enormous_ttl_is_taken() {
    on_every_way(|way| {
        let _: () = way.ask(&["SET", "k", "theirs", "PX", "4000000000000000"]);
        assert!(lock(way, "k").try_lock().unwrap_err().is_taken(), "{}", way.name);
    });
}
