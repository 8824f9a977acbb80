//! `try`: every branch of its row.

use super::*;

#[test]
fn a_free_lock_is_taken_with_a_fence_that_is_the_servers_time() {
    let mut desk = Desk::new();
    let before = desk.clock();
    let (fence, stamp) = desk.held("d0.me-1", "5000");
    assert!((before..=desk.clock()).contains(&fence), "{fence}");
    assert_eq!(stamp, "1");
    assert_eq!(desk.owner().as_deref(), Some("d0.me-1"));
    assert_eq!(desk.fence(), Some(fence.to_string()));
    assert!((4000..=5000).contains(&desk.pttl("k")));
    assert!((DAY - 1000..=DAY).contains(&desk.pttl(FENCE)));
}

#[test]
fn the_servers_time_is_told_in_six_digits_of_microseconds_whatever_they_are() {
    let mut desk = Desk::new();
    for i in 0..300 {
        let (fence, _) = desk.held(&format!("t{i}"), "5000");
        assert_eq!(fence.to_string().len(), 16);
        let _: () = desk.ask(&["DEL", "k"]);
    }
}

#[test]
fn fences_step_over_a_block_when_the_clock_stands_behind_them() {
    let mut desk = Desk::new();
    let ahead = desk.clock() + 3_600_000_000;
    desk.set(FENCE, &ahead.to_string());
    for i in 1..=3 {
        let before = desk.clock();
        let (fence, stamp) = desk.held("me", "5000");
        assert_eq!(fence, ahead + 17 * i);
        let clock: u64 = stamp.parse().unwrap();
        assert!((before..=desk.clock()).contains(&clock), "the clock is told beside it");
        let _: () = desk.ask(&["DEL", "k"]);
    }
}

#[test]
fn a_fence_is_above_the_hint() {
    let mut desk = Desk::new();
    let hint = desk.clock() + 3_600_000_000;
    let answer = desk.run(TRY, &["me", "5000", &hint.to_string(), "0"]);
    assert!(answer.starts_with(&format!("held {} ", hint + 1)), "{answer}");
    assert_eq!(desk.fence(), Some((hint + 1).to_string()), "all its digits");
}

#[test]
fn a_stored_fence_that_is_no_number_of_ours_counts_as_none() {
    let mut desk = Desk::new();
    let junk = [
        "inf",
        "nan",
        "1e300",
        "0x7fffffffffffff",
        "-5",
        "1.5",
        " 7",
        "",
        "99999999999999999",
        "9007199254740992",
        "x",
    ];
    for junk in junk {
        let _: () = desk.ask(&["SET", FENCE, junk]);
        let before = desk.clock();
        let (fence, stamp) = desk.held("me", "5000");
        assert!((before..=desk.clock()).contains(&fence), "{junk:?}: {fence}");
        assert_eq!(stamp, "1", "{junk:?}");
        assert!(desk.pttl(FENCE) > 0);
        let _: () = desk.ask(&["DEL", "k"]);
    }
}

#[test]
fn the_owners_own_attempt_holds_again_with_the_same_fence_and_the_full_ttl() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "1000");
    let before = desk.clock();
    let (again, stamp) = desk.held("me", "5000");
    assert_eq!(again, fence);
    assert!((before..=desk.clock()).contains(&stamp.parse().unwrap()), "the clock, not the fence's");
    assert!(desk.pttl("k") > 4000);
}

#[test]
fn the_owners_own_attempt_never_shortens() {
    let mut desk = Desk::new();
    desk.held("me", "60000");
    desk.held("me", "1000");
    assert!(desk.pttl("k") > 50_000);
}

#[test]
fn the_owners_own_attempt_gives_a_key_without_a_ttl_one_again() {
    let mut desk = Desk::new();
    desk.held("me", "1000");
    let _: () = desk.ask(&["PERSIST", "k"]);
    desk.held("me", "5000");
    assert!((4000..=5000).contains(&desk.pttl("k")));
}

#[test]
fn the_owners_own_attempt_mints_where_the_fence_is_lost_or_not_above_the_hint() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "5000");
    for junk in [None, Some("inf"), Some("0"), Some("1e300")] {
        let _: () = match junk {
            None => desk.ask(&["DEL", FENCE]),
            Some(junk) => desk.ask(&["SET", FENCE, junk]),
        };
        let (again, _) = desk.held("me", "5000");
        assert!(again > fence, "{junk:?}");
    }
    let (fence, _) = desk.held("me", "5000");
    let above = desk.run(TRY, &["me", "5000", &(fence - 1).to_string(), "0"]);
    assert!(above.starts_with(&format!("held {fence} ")), "{above}");
    let equal = desk.run(TRY, &["me", "5000", &fence.to_string(), "0"]);
    assert!(!equal.starts_with(&format!("held {fence} ")), "{equal}");
    let hint = desk.clock() + 1_000_000;
    let answer = desk.run(TRY, &["me", "5000", &hint.to_string(), "0"]);
    assert!(answer.starts_with(&format!("held {} ", hint + 1)), "{answer}");
    assert_eq!(desk.owner().as_deref(), Some("me"));
}

#[test]
fn the_owners_own_attempt_is_never_late() {
    let mut desk = Desk::new();
    desk.held("me", "5000");
    assert!(desk.run(TRY, &["me", "5000", "0", "1"]).starts_with("held "));
}

#[test]
fn anothers_lock_is_taken_and_its_ttl_and_kind_are_told() {
    let mut desk = Desk::new();
    for (owner, hands_over) in
        [("d1.x-1", "1"), ("d0.x-1", "0"), ("theirs", "-1"), ("", "-1"), ("d1", "-1"), ("d2.x", "-1")]
    {
        desk.set("k", owner);
        let before = desk.clock();
        let answer = desk.run(TRY, &["me", "5000", "0", "0"]);
        let words: Vec<&str> = answer.split(' ').collect();
        assert_eq!((words[0], words[2], words.len()), ("taken", hands_over, 4), "{owner:?}: {answer}");
        assert!((29_000..=30_000).contains(&words[1].parse::<i64>().unwrap()));
        assert!((before..=desk.clock()).contains(&words[3].parse().unwrap()));
        assert_eq!(desk.owner().as_deref(), Some(owner));
        assert_eq!(desk.fence(), None, "nothing is minted for nobody");
    }
}

#[test]
fn a_lock_without_a_ttl_or_with_an_enormous_one_is_told_in_digits() {
    let mut desk = Desk::new();
    let _: () = desk.ask(&["SET", "k", "theirs"]);
    assert!(desk.run(TRY, &["me", "5000", "0", "0"]).starts_with("taken -1 -1 "));
    let _: () = desk.ask(&["SET", "k", "theirs", "PX", "4000000000000000"]);
    let answer = desk.run(TRY, &["me", "5000", "0", "0"]);
    assert!(answer.starts_with("taken 3999999999") || answer.starts_with("taken 4000000000000000"), "{answer}");
}

#[test]
fn an_attempt_after_its_time_refuses_itself_and_changes_nothing() {
    let mut desk = Desk::new();
    let now = desk.clock();
    let answer = desk.run(TRY, &["me", "5000", "0", &(now - 1).to_string()]);
    let clock: u64 = answer.strip_prefix("late ").unwrap().parse().unwrap();
    assert!((now..=desk.clock()).contains(&clock));
    assert_eq!((desk.owner(), desk.fence()), (None, None));
    let soon = desk.clock() + 5_000_000;
    assert!(desk.run(TRY, &["me", "5000", "0", &soon.to_string()]).starts_with("held "), "in time");
    // Taken is taken, however late.
    assert!(desk.run(TRY, &["other", "5000", "0", "1"]).starts_with("taken "));
}

#[test]
fn resuming_takes_a_hold_over_with_a_new_fence_and_never_takes_a_free_lock() {
    let mut desk = Desk::new();
    let soon = (desk.clock() + 60_000_000).to_string();
    let resume = |desk: &mut Desk, token: &str| desk.run(TRY, &[token, "5000", "-1", &soon]);
    assert!(resume(&mut desk, "me").starts_with("late "), "however early it is");
    assert_eq!((desk.owner(), desk.fence()), (None, None));
    let (fence, _) = desk.held("me", "1000");
    let answer = resume(&mut desk, "me");
    let resumed: u64 = answer.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(answer.starts_with("held ") && resumed > fence, "{answer}");
    assert!(desk.pttl("k") > 4000);
    assert!(resume(&mut desk, "other").starts_with("taken "));
    // Its block is its own, also where the clock stands.
    let ahead = desk.clock() + 3_600_000_000;
    desk.set(FENCE, &ahead.to_string());
    assert!(resume(&mut desk, "me").starts_with(&format!("held {} ", ahead + 17)));
    // A late copy takes nothing from the guard of a retry.
    assert!(desk.run(TRY, &["me", "5000", "-1", "1"]).starts_with("late "));
    assert_eq!(desk.fence(), Some((ahead + 17).to_string()));
}

#[test]
fn the_largest_fence_that_fits_is_a_fence() {
    let mut desk = Desk::new();
    desk.set(FENCE, "9007199254740900");
    assert_eq!(desk.held("me", "5000").0, 9_007_199_254_740_917);
    // Its block must fit, too: what leaves no room for one counts for nothing.
    let (token, limit) = (["a", "b"], 1u64 << 53);
    for (token, stored) in token.into_iter().zip([limit - 1 - 33, limit - 33]) {
        let _: () = desk.ask(&["DEL", "k"]);
        desk.set(FENCE, &stored.to_string());
        let fence = desk.held(token, "5000").0;
        assert!(fence + 16 < limit, "{fence} after {stored}");
        assert_eq!(fence > stored, stored == limit - 1 - 33, "{fence} after {stored}");
    }
}

#[test]
fn the_fence_is_stored_before_the_lock() {
    let mut desk = Desk::new();
    let mut monitor = desk.server.connection();
    redis::cmd("MONITOR").exec(&mut monitor).unwrap();
    desk.held("me", "5000");
    let mut sets = Vec::new();
    while sets.len() < 2 {
        let line: String = redis::from_redis_value(monitor.recv_response().unwrap()).unwrap();
        if line.contains(" lua] \"SET\"") {
            sets.push(line);
        }
    }
    assert!(sets[0].contains(FENCE) && sets[1].contains("\"k\""), "{sets:?}");
}
