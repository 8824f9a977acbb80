//! `renew`: every branch of its row.

use super::*;

#[test]
fn renew_gives_its_own_lock_the_full_ttl_and_never_less_than_it_has() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "1000");
    let fence = fence.to_string();
    for compared in ["", &fence] {
        assert_eq!(desk.run(RENEW, &["me", "60000", compared, "0"]), "1");
        assert!(desk.pttl("k") > 59_000);
        assert_eq!(desk.run(RENEW, &["me", "1000", compared, "0"]), "1");
        assert!(desk.pttl("k") > 59_000, "never shortens");
    }
    let _: () = desk.ask(&["PERSIST", "k"]);
    assert_eq!(desk.run(RENEW, &["me", "5000", "", "0"]), "1");
    assert!((4000..=5000).contains(&desk.pttl("k")), "a ttl again");
}

#[test]
fn renew_never_brings_a_vanished_lock_back() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "1000");
    let _: () = desk.ask(&["DEL", "k"]);
    assert_eq!(desk.run(RENEW, &["me", "60000", &fence.to_string(), "0"]), "-1");
    let past = desk.clock() - 1;
    assert_eq!(desk.run(RENEW, &["me", "60000", &fence.to_string(), &past.to_string()]), "-1");
    assert_eq!(desk.owner(), None);
}

#[test]
fn renew_sets_a_lock_again_only_within_its_again() {
    let mut desk = Desk::new();
    let soon = desk.clock() + 60_000_000;
    assert_eq!(desk.run(RENEW, &["me", "5000", "1764547200000000", &soon.to_string()]), "1");
    assert_eq!(desk.owner().as_deref(), Some("me"));
    assert_eq!(desk.fence().as_deref(), Some("1764547200000000"));
    assert!((4000..=5000).contains(&desk.pttl("k")));
    assert!(desk.pttl(FENCE) > DAY - 1000);
}

#[test]
fn renew_leaves_anothers_lock_as_it_is() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    for again in ["0", "9000000000000000"] {
        assert_eq!(desk.run(RENEW, &["me", "60000", "17", again]), "0");
    }
    assert_eq!(desk.owner().as_deref(), Some("theirs"));
    assert!(desk.pttl("k") <= 30_000);
    assert_eq!(desk.fence(), None);
    desk.list("k");
    assert_eq!(desk.run(RENEW, &["me", "60000", "17", "0"]), "0");
    assert_eq!(desk.pttl("k"), -1);
}

#[test]
fn renew_of_another_lease_of_the_same_token_is_refused() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "1000");
    assert_eq!(desk.run(RENEW, &["me", "60000", &(fence - 1).to_string(), "0"]), "0");
    assert!(desk.pttl("k") <= 1000, "not prolonged");
}

#[test]
fn renew_raises_a_fence_that_is_lower_or_lost() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "60000");
    let given = (fence + 100).to_string();
    for stored in [None, Some("17"), Some("inf"), Some("")] {
        let _: () = match stored {
            None => desk.ask(&["DEL", FENCE]),
            Some(stored) => desk.ask(&["SET", FENCE, stored]),
        };
        assert_eq!(desk.run(RENEW, &["me", "60000", &given, "0"]), "1", "{stored:?}");
        assert_eq!(desk.fence().as_deref(), Some(&*given), "{stored:?}");
        assert!(desk.pttl(FENCE) > DAY - 1000);
    }
}
