//! `leave`: every branch of its row.

use super::*;

#[test]
fn leave_takes_back_a_lock_and_says_so() {
    let mut desk = Desk::new();
    desk.held("me", "5000");
    assert_eq!(desk.run(LEAVE, &["me", "", "0"]), "1 1");
    assert_eq!(desk.owner(), None);
    assert_eq!(desk.run(LEAVE, &["me", "", "0"]), "-1 1");
    desk.set("k", "theirs");
    assert_eq!(desk.run(LEAVE, &["me", "", "0"]), "0 1");
    desk.list("k");
    assert_eq!(desk.run(LEAVE, &["me", "", "0"]), "0 1");
    assert_eq!(desk.ask::<usize>(&["LLEN", "k"]), 1);
}

#[test]
fn leave_is_final_when_no_attempt_can_be_accepted_any_more() {
    let mut desk = Desk::new();
    let now = desk.clock();
    for (not_after, last) in [(0, "1"), (now - 1, "1"), (now + 60_000_000, "0")] {
        assert_eq!(desk.run(LEAVE, &["me", "", &not_after.to_string()]), format!("-1 {last}"));
        desk.held("me", "5000");
        assert_eq!(desk.run(LEAVE, &["me", "", &not_after.to_string()]), format!("1 {last}"));
    }
}

#[test]
fn leave_with_a_fence_is_about_that_lease_alone() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "5000");
    assert_eq!(desk.run(LEAVE, &["me", &(fence + 17).to_string(), "0"]), "0 1");
    assert_eq!(desk.owner().as_deref(), Some("me"));
    assert!(desk.pttl("k") > 4000);
    assert_eq!(desk.run(LEAVE, &["me", &fence.to_string(), "0"]), "1 1");
    assert_eq!(desk.owner(), None);
    // A fence that is lost, or no string, is another.
    let (fence, _) = desk.held("me", "5000");
    let _: () = desk.ask(&["DEL", FENCE]);
    assert_eq!(desk.run(LEAVE, &["me", &fence.to_string(), "0"]), "0 1");
    desk.list(FENCE);
    assert_eq!(desk.run(LEAVE, &["me", &fence.to_string(), "0"]), "0 1");
    assert_eq!(desk.owner().as_deref(), Some("me"));
}

#[test]
fn leave_takes_the_token_out_of_the_queue_and_no_other() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    for token in ["me", "other"] {
        let _: () = desk.ask(&["ZADD", QUEUE, "1", token]);
        let _: () = desk.ask(&["HSET", WAITERS, token, "1 1 c"]);
    }
    assert_eq!(desk.run(LEAVE, &["me", "", "0"]), "0 1");
    assert_eq!(desk.ask::<Vec<String>>(&["ZRANGE", QUEUE, "0", "-1"]), ["other"]);
    assert_eq!(desk.ask::<Vec<String>>(&["HKEYS", WAITERS]), ["other"]);
}
