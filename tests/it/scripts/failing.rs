//! Scripts on keys of the wrong type, on a full memory, on a replica, and without the rights.

use super::*;

#[test]
fn a_key_of_another_type_is_an_error_for_who_wants_the_lock() {
    let mut desk = Desk::new();
    desk.list("k");
    let error = desk.try_run(TRY, &["me", "5000", "0", "0"]).unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    assert_eq!(desk.ask::<usize>(&["LLEN", "k"]), 1);
    assert_eq!(desk.fence(), None);
}

#[test]
fn a_fence_of_another_type_is_an_error_and_no_lock_is_left() {
    let mut desk = Desk::new();
    desk.list(FENCE);
    let error = desk.try_run(TRY, &["me", "5000", "0", "0"]).unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    assert_eq!(desk.owner(), None);
}

#[test]
fn a_fence_of_another_type_stops_a_renewal_that_compares_it_and_nothing_else() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "5000");
    desk.list(FENCE);
    let error = desk.try_run(RENEW, &["me", "9000", &fence.to_string(), "0"]).unwrap_err();
    assert!(is_wrong_type(&error), "{error}");
    assert!(desk.pttl("k") <= 5000);
    assert_eq!(desk.run(RENEW, &["me", "9000", "", "0"]), "1");
    assert_eq!(desk.run(RELEASE, &["me"]), "1");
    assert_eq!(desk.ask::<usize>(&["LLEN", FENCE]), 1);
}

#[test]
fn a_full_memory_takes_back_and_frees_what_is_held() {
    let mut desk = Desk::new();
    for (script, args, answer) in [(LEAVE, &["me", "", "0"][..], "1 1"), (FORCE, &[], "1")] {
        let _: () = desk.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        desk.held("me", "5000");
        let _: () = desk.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(desk.run(script, args), answer);
        assert_eq!(desk.owner(), None);
    }
}

#[test]
fn a_full_memory_refuses_a_new_lock_whole_and_no_other_call() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "5000");
    let full = |desk: &mut Desk| -> () { desk.ask(&["CONFIG", "SET", "maxmemory", "1"]) };
    full(&mut desk);
    desk.held("me", "9000");
    assert!(desk.pttl("k") > 8000);
    assert_eq!(desk.run(RENEW, &["me", "60000", &(fence + 1).to_string(), "0"]), "1", "a raised fence, too");
    assert!(desk.run(TRY, &["other", "5000", "0", "0"]).starts_with("taken "));
    assert_eq!(desk.run(RELEASE, &["me"]), "1");
    let error = desk.try_run(TRY, &["me", "5000", "0", "0"]).unwrap_err();
    assert!(error.to_string().contains("OOM") || error.code() == Some("OOM"), "{error}");
    assert_eq!(desk.owner(), None);
    assert_eq!(desk.run(LEAVE, &["me", "", "0"]), "-1 1");
    assert_eq!(desk.run(FORCE, &[]), "0");
}

#[test]
fn a_replica_answers_readonly_and_never_that_a_lock_is_lost() {
    let mut desk = Desk::new();
    for owner in [None, Some("me"), Some("theirs")] {
        let _: () = desk.ask(&["REPLICAOF", "NO", "ONE"]);
        let _: () = desk.ask(&["FLUSHALL"]);
        if let Some(owner) = owner {
            desk.set("k", owner);
        }
        // A master that is not there: what it has stays.
        let _: () = desk.ask(&["REPLICAOF", "127.0.0.1", "1"]);
        let calls: [(&str, &[&str]); 5] = [
            (RELEASE, &["me"]),
            (LEAVE, &["me", "", "0"]),
            (LEAVE, &["me", "5", "0"]),
            (RENEW, &["me", "5000", "17", "0"]),
            (RENEW, &["me", "5000", "", "0"]),
        ];
        for (script, args) in calls {
            let error = desk.try_run(script, args).expect_err("a replica accepts nothing");
            assert!(is_read_only(&error), "{owner:?} {args:?}: {error}");
        }
        if owner != Some("theirs") {
            let error = desk.try_run(TRY, &["me", "5000", "0", "0"]).unwrap_err();
            assert!(is_read_only(&error), "{owner:?}: {error}");
        }
    }
}

#[test]
fn a_user_who_may_not_touch_a_helper_key_may_not_take_the_lock() {
    let mut desk = Desk::new();
    let mut admin = desk.server.connection();
    for (i, helper) in [FENCE, QUEUE, WAITERS].into_iter().enumerate() {
        let name = format!("u{i}");
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg(&name).arg("on").arg("nopass").arg("+@all").arg("resetkeys").arg("~k");
        for allowed in [FENCE, QUEUE, WAITERS].into_iter().filter(|key| *key != helper) {
            command.arg(format!("~{allowed}"));
        }
        command.exec(&mut admin).unwrap();
        redis::cmd("AUTH").arg(&name).arg("x").exec(&mut desk.connection).unwrap();
        for (script, args) in [(TRY, &["me", "5000", "0", "0"][..]), (RELEASE, &["me"]), (RENEW, &["me", "1", "", "0"])]
        {
            let error = desk.try_run(script, args).unwrap_err();
            assert_eq!(error.code(), Some("NOPERM"), "{helper}: {error}");
        }
    }
    assert_eq!(desk.server.ask::<usize>(&["DBSIZE"]), 0, "nothing was written");
}
