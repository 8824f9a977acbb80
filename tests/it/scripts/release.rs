//! `release` and `force`: every branch of their rows.

use super::*;

#[test]
fn release_deletes_its_own_lock_and_keeps_the_fence() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "5000");
    assert_eq!(desk.run(RELEASE, &["me"]), "1");
    assert_eq!((desk.owner(), desk.fence()), (None, Some(fence.to_string())));
    assert_eq!(desk.run(RELEASE, &["me"]), "-1");
}

#[test]
fn release_of_a_lock_that_is_not_there_makes_none() {
    let mut desk = Desk::new();
    assert_eq!(desk.run(RELEASE, &["me"]), "-1");
    assert_eq!(desk.ask::<usize>(&["DBSIZE"]), 0);
}

#[test]
fn release_leaves_anothers_lock_as_it_is() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    assert_eq!(desk.run(RELEASE, &["me"]), "0");
    assert_eq!(desk.owner().as_deref(), Some("theirs"));
    assert!(desk.pttl("k") > 29_000);
    desk.list("k");
    assert_eq!(desk.run(RELEASE, &["me"]), "0", "what is no lock is another's");
    assert_eq!(desk.ask::<usize>(&["LLEN", "k"]), 1);
}

#[test]
fn force_frees_whoever_holds_and_says_whether_there_was_one() {
    let mut desk = Desk::new();
    assert_eq!(desk.run(FORCE, &[]), "0");
    for owner in ["d0.x-1", "theirs", ""] {
        desk.set("k", owner);
        assert_eq!(desk.run(FORCE, &[]), "1");
        assert_eq!(desk.owner(), None);
    }
}

#[test]
fn force_does_not_delete_what_is_no_lock() {
    let mut desk = Desk::new();
    desk.list("k");
    let error = desk.try_run(FORCE, &[]).unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    assert_eq!(desk.ask::<usize>(&["LLEN", "k"]), 1);
}

#[test]
fn nothing_that_is_wrong_with_a_helper_key_keeps_the_lock() {
    let mut desk = Desk::new();
    for (script, args) in [(RELEASE, &["me"][..]), (LEAVE, &["me", "", "0"]), (FORCE, &[])] {
        for helper in [FENCE, QUEUE, WAITERS] {
            let _: () = desk.ask(&["FLUSHALL"]);
            desk.held("me", "5000");
            desk.list(helper);
            assert!(desk.run(script, args).starts_with('1'), "{helper}");
            assert_eq!(desk.owner(), None, "{helper}");
        }
    }
}

#[test]
fn release_and_force_delete_also_where_a_queue_stands() {
    let mut desk = Desk::new();
    for (script, args) in [(RELEASE, &["me"][..]), (LEAVE, &["me", "", "0"]), (FORCE, &[])] {
        let _: () = desk.ask(&["FLUSHALL"]);
        desk.held("me", "5000");
        let _: () = desk.ask(&["ZADD", QUEUE, "1", "d1.other-1"]);
        assert!(desk.run(script, args).starts_with('1'));
        assert_eq!(desk.owner(), None);
    }
}
