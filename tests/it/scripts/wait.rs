//! `wait`: every branch of its row.

use super::{waited::Waited, *};

#[test]
fn wait_takes_a_lock_that_is_free_and_that_nobody_waits_for() {
    let mut desk = Desk::new();
    let before = desk.clock();
    let fence = desk.wait("d1.me-1", 0).fence();
    assert!((before..=desk.clock()).contains(&fence));
    assert_eq!((desk.owner().as_deref(), desk.fence()), (Some("d1.me-1"), Some(fence.to_string())));
    assert!((4000..=5000).contains(&desk.pttl("k")));
    assert!(desk.pttl(FENCE) > DAY - 1000);
    assert_eq!(desk.queue(), [""; 0]);
    let _: () = desk.ask(&["DEL", "k"]);
    let hint = desk.clock() + 1_000_000;
    let answer = desk.run(WAIT, &["me", "5000", &hint.to_string(), "0", "0", "0", ""]);
    assert_eq!(Waited::read(&answer).fence(), hint + 1, "above the hint, also at the last attempt");
}

#[test]
fn wait_files_its_waiter_and_tells_all_that_it_needs_to_know() {
    let mut desk = Desk::new();
    desk.set("k", "d1.x-1");
    let before = desk.clock();
    let first = desk.wait("me", 0);
    let Waited::Queued { pttl, hands_over, rank, place, again, push, back, clock } = first else { panic!("{first:?}") };
    assert!((29_000..=30_000).contains(&pttl));
    assert_eq!((hands_over, rank, again, push, back), (1, 0, false, false, false));
    assert!((before..=desk.clock()).contains(&place) && (before..=desk.clock()).contains(&clock));
    assert_eq!(desk.places(), [("me".to_owned(), place)]);
    let entry = format!("{} {} ", clock / 1000 + 1000, desk.n);
    assert_eq!(desk.entry("me"), Some(entry), "back-by, number, no channel");
    assert_eq!(desk.wait("you", 0).rank(), 1);
    assert_eq!(desk.owner().as_deref(), Some("d1.x-1"));
    assert_eq!(desk.fence(), None, "nothing is minted for nobody");
}

#[test]
fn wait_tells_who_hands_over_and_for_how_long_it_is_taken() {
    let mut desk = Desk::new();
    for (owner, kind) in [("d1.x-1", 1), ("d0.x-1", 0), ("theirs", -1), ("", -1), ("d2.x", -1)] {
        desk.set("k", owner);
        let answer = desk.wait("me", 0);
        assert!(matches!(answer, Waited::Queued { hands_over, .. } if hands_over == kind), "{owner:?}: {answer:?}");
    }
    let _: () = desk.ask(&["PERSIST", "k"]);
    assert!(matches!(desk.wait("me", 0), Waited::Queued { pttl: -1, .. }));
}

#[test]
fn both_helper_keys_last_ten_seconds_after_the_last_poll_of_any_waiter() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    desk.wait("me", 0);
    for waiter in ["me", "you"] {
        for helper in [QUEUE, WAITERS] {
            let _: () = desk.ask(&["PEXPIRE", helper, "2000"]);
        }
        desk.wait(waiter, 0);
        for helper in [QUEUE, WAITERS] {
            assert!((9000..=10_000).contains(&desk.pttl(helper)), "{waiter} {helper}");
        }
    }
}

#[test]
fn a_waiter_keeps_its_place_and_one_that_was_dropped_comes_back_in_front() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    let place = desk.wait("me", 0).place();
    assert!(desk.wait("you", 0).place() > place);
    for sent in [0, place, place + 5_000_000] {
        let again = desk.wait("me", sent);
        assert_eq!((again.place(), again.rank()), (place, 0), "its place stands, whatever it sends");
        assert!(matches!(again, Waited::Queued { back: false, .. }));
    }
    let _: () = desk.ask(&["ZREM", QUEUE, "me"]);
    let back = desk.wait("me", place);
    assert!(matches!(back, Waited::Queued { back: true, rank: 0, .. }) && back.place() == place, "{back:?}");
    let _: () = desk.ask(&["ZREM", QUEUE, "me"]);
    let anew = desk.wait("me", 0);
    assert!(matches!(anew, Waited::Queued { back: false, rank: 1, .. }), "{anew:?}");
    let _: () = desk.ask(&["DEL", QUEUE]);
    assert_eq!(desk.wait("me", place).place(), place, "also into a queue that was lost");
}

#[test]
fn a_new_place_is_behind_all_others_also_where_the_clock_went_back() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    let ahead = desk.clock() + 3_600_000_000;
    desk.entrant("first", ahead, 60_000, "");
    assert_eq!(desk.wait("me", 0).place(), ahead + 1);
    assert_eq!(desk.wait("you", 0).place(), ahead + 2);
    assert_eq!(desk.queue(), ["first", "me", "you"]);
}

#[test]
fn the_number_of_a_waiter_never_goes_back() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    // Numbers of 32 bits and more keep their digits.
    for (n, stored) in [(5_000_000_000, "5000000000"), (999, "5000000000"), (5_000_000_001, "5000000001")] {
        desk.n = n - 1;
        desk.wait("me", 0);
        let entry = desk.entry("me").unwrap();
        assert_eq!(entry.split(' ').nth(1), Some(stored), "{n}");
    }
    // A poll that is executed late is a sign of life nonetheless.
    let _: () = desk.ask(&["HSET", WAITERS, "me", "17 6000000000 "]);
    desk.wait("me", 0);
    let entry = desk.entry("me").unwrap();
    let back_by: u64 = entry.split(' ').next().unwrap().parse().unwrap();
    assert!(entry.ends_with(" 6000000000 ") && back_by > desk.clock() / 1000, "{entry}");
}

#[test]
fn a_channel_counts_while_the_server_sees_its_listener() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    let wait = |desk: &mut Desk| {
        let answer = desk.try_wait("me", 0, 1000, "ear").unwrap();
        let Waited::Queued { push, .. } = answer else { panic!("{answer:?}") };
        (push, desk.entry("me").unwrap().ends_with(" ear"))
    };
    assert_eq!(wait(&mut desk), (false, false), "nobody listens");
    let ear = Ear::new(&desk, "ear");
    assert_eq!(wait(&mut desk), (true, true));
    desk.login("blind", "-pubsub");
    assert_eq!(wait(&mut desk), (false, false), "it cannot be asked");
    desk.login("seeing", "+@all");
    assert_eq!(wait(&mut desk), (true, true));
    drop(ear);
    crate::support::eventually(std::time::Duration::from_secs(5), "nobody listens", || {
        wait(&mut desk) == (false, false)
    });
}

#[test]
fn a_waiter_that_finds_the_lock_its_own_holds_it_and_is_out_of_the_queue() {
    let mut desk = Desk::new();
    let (fence, _) = desk.held("me", "300");
    for (token, place) in [("me", 1), ("you", 2)] {
        desk.entrant(token, place, 60_000, "");
    }
    assert_eq!(desk.wait("me", 1).fence(), fence, "the one that is stored");
    assert!(desk.pttl("k") > 4000, "the full ttl");
    assert_eq!(desk.queue(), ["you"]);
    assert_eq!(desk.entry("me"), None);
    let _: () = desk.ask(&["PEXPIRE", "k", "60000"]);
    assert_eq!(desk.last("me").fence(), fence);
    assert!(desk.pttl("k") > 50_000, "never shortens");
    let answer = desk.run(WAIT, &["me", "5000", "0", "1", "0", "1000", ""]);
    assert_eq!(Waited::read(&answer).fence(), fence, "never late");
    let answer = desk.run(WAIT, &["me", "5000", &fence.to_string(), "0", "0", "1000", ""]);
    assert!(Waited::read(&answer).fence() > fence, "a new one if it is not above the hint");
    for junk in [None, Some("inf"), Some("0"), Some("1e300"), Some("")] {
        match junk {
            None => desk.ask::<()>(&["DEL", FENCE]),
            Some(junk) => desk.set(FENCE, junk),
        }
        let fresh = desk.wait("me", 0).fence();
        assert!(fresh > fence, "{junk:?}");
        assert_eq!(desk.fence(), Some(fresh.to_string()));
    }
}

#[test]
fn a_wait_after_its_time_takes_nothing_and_the_last_one_leaves_the_queue() {
    let mut desk = Desk::new();
    let late = |desk: &mut Desk, beat: &str| desk.run(WAIT, &["me", "5000", "0", "1", "0", beat, ""]);
    for owner in [None, Some("theirs")] {
        let _: () = desk.ask(&["FLUSHALL"]);
        if let Some(owner) = owner {
            desk.set("k", owner);
        }
        assert!(matches!(Waited::read(&late(&mut desk, "1000")), Waited::Late));
        assert_eq!(desk.queue(), [""; 0], "not entered");
        desk.entrant("me", 7, 60_000, "");
        assert!(matches!(Waited::read(&late(&mut desk, "1000")), Waited::Late));
        assert_eq!(desk.queue(), ["me"], "one that is in stays in");
        assert!(matches!(Waited::read(&late(&mut desk, "0")), Waited::Late));
        assert_eq!((desk.queue().len(), desk.entry("me")), (0, None));
        assert_eq!((desk.owner().as_deref(), desk.fence()), (owner, None));
    }
    let soon = (desk.clock() + 60_000_000).to_string();
    let in_time = desk.run(WAIT, &["me", "5000", "0", &soon, "0", "1000", ""]);
    assert!(in_time.starts_with("queued "), "{in_time}");
}

#[test]
fn the_last_wait_takes_the_lock_or_leaves_the_queue() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    assert_eq!(desk.last("me").rank(), -1);
    assert_eq!(desk.ask::<usize>(&["EXISTS", QUEUE, WAITERS]), 0, "it does not enter");
    desk.wait("me", 0);
    desk.wait("you", 0);
    assert_eq!(desk.last("me").rank(), -1);
    assert_eq!((desk.queue(), desk.entry("me")), (vec!["you".to_owned()], None));
    // Free, and others are in front.
    let _: () = desk.ask(&["DEL", "k"]);
    assert_eq!(desk.last("me").rank(), -1);
    assert_eq!(desk.owner().as_deref(), Some("you"));
    // Free, and it is the first.
    let _: () = desk.ask(&["DEL", "k"]);
    desk.entrant("me", 1, 60_000, "");
    desk.entrant("you", 2, 60_000, "");
    desk.last("me").fence();
    assert_eq!((desk.owner().as_deref(), desk.queue()), (Some("me"), vec!["you".to_owned()]));
}

#[test]
fn a_lock_that_was_left_free_goes_to_the_first_in_the_queue_whoever_asks() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    for token in ["d1.a-1", "d1.b-1", "d1.c-1"] {
        desk.wait(token, 0);
    }
    let _: () = desk.ask(&["DEL", "k"]);
    let answer = desk.wait("d1.c-1", 0);
    assert!(matches!(answer, Waited::Queued { hands_over: 1, rank: 1, pttl: 1.., .. }), "{answer:?}");
    assert_eq!(desk.owner().as_deref(), Some("d1.a-1"));
    assert!((0..=1000).contains(&desk.pttl("k")), "until it said it would be back");
    assert!(desk.fence().is_some());
    let _: () = desk.ask(&["DEL", "k"]);
    assert!(matches!(desk.wait("d1.b-1", 0), Waited::Held(_)), "the first itself");
    assert!((4000..=5000).contains(&desk.pttl("k")), "with its whole ttl");
    assert_eq!(desk.queue(), ["d1.c-1"]);
}

#[test]
fn a_newcomer_never_gets_past_who_waits() {
    let mut desk = Desk::new();
    desk.entrant("first", 1, 60_000, "");
    assert_eq!(desk.wait("me", 0).rank(), 0);
    assert_eq!((desk.owner().as_deref(), desk.queue()), (Some("first"), vec!["me".to_owned()]));
}

#[test]
fn more_dead_waiters_than_one_call_clears_are_cleared_by_asking_again() {
    let mut desk = Desk::new();
    for beat in [1000, 0] {
        let _: () = desk.ask(&["FLUSHALL"]);
        (1..=250).for_each(|place| desk.entrant(&format!("dead-{place}"), place, 0, ""));
        desk.entrant("me", 300, 60_000, "");
        for left in [151, 51] {
            let answer = desk.try_wait("me", 300, beat, "").unwrap();
            assert!(matches!(answer, Waited::Queued { again: true, pttl: -2, hands_over: 0, .. }), "{answer:?}");
            assert_eq!(
                (desk.queue().len(), answer.rank()),
                (left, left as i64 - 1),
                "it stays in, last attempt or not"
            );
            assert_eq!(desk.owner(), None);
        }
        desk.try_wait("me", 300, beat, "").unwrap().fence();
        assert_eq!(desk.ask::<usize>(&["EXISTS", QUEUE, WAITERS]), 0);
    }
}

#[test]
fn without_the_right_to_publish_a_waiter_leaves_the_lock_free_for_the_first() {
    let mut desk = Desk::new();
    let _ear = Ear::new(&desk, "ear");
    desk.entrant("first", 7, 60_000, "ear");
    desk.login("mute", "-publish");
    let answer = desk.wait("me", 0);
    assert!(matches!(answer, Waited::Queued { pttl: -2, hands_over: 0, rank: 1, again: false, .. }), "{answer:?}");
    assert_eq!((desk.owner(), desk.queue()), (None, vec!["first".to_owned(), "me".to_owned()]));
    assert!(desk.wait("first", 7).fence() > 0, "who takes it with its own poll");
}

#[test]
fn a_full_memory_refreshes_who_is_queued_and_refuses_a_new_lock_whole() {
    let mut desk = Desk::new();
    let full = |desk: &mut Desk| desk.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    full(&mut desk);
    let error = desk.try_wait("me", 0, 1000, "").unwrap_err();
    assert!(error.to_string().contains("OOM") || error.code() == Some("OOM"), "{error}");
    assert_eq!((desk.owner(), desk.fence()), (None, None));
    let _: () = desk.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    desk.set("k", "theirs");
    desk.wait("me", 0);
    let _: () = desk.ask(&["PEXPIRE", QUEUE, "2000"]);
    full(&mut desk);
    assert_eq!(desk.wait("me", 0).rank(), 0);
    assert!(desk.pttl(QUEUE) > 9000);
    let _: () = desk.ask(&["DEL", "k"]);
    desk.wait("me", 0).fence();
    desk.wait("me", 0).fence();
}

#[test]
fn a_replica_files_nobody_and_grants_nothing() {
    let mut desk = Desk::new();
    for owner in [None, Some("me"), Some("theirs")] {
        let _: () = desk.ask(&["REPLICAOF", "NO", "ONE"]);
        let _: () = desk.ask(&["FLUSHALL"]);
        if let Some(owner) = owner {
            desk.set("k", owner);
        }
        let _: () = desk.ask(&["REPLICAOF", "127.0.0.1", "1"]);
        for beat in [1000, 0] {
            let error = desk.try_wait("me", 0, beat, "").expect_err("a replica accepts nothing");
            assert!(is_read_only(&error), "{owner:?} {beat}: {error}");
        }
    }
}

#[test]
fn a_key_of_another_type_is_an_error_for_who_waits_and_no_lock_is_left() {
    let mut desk = Desk::new();
    for (odd, owner) in [("k", None), (QUEUE, None), (FENCE, None), (QUEUE, Some("theirs")), (WAITERS, Some("theirs"))]
    {
        let _: () = desk.ask(&["FLUSHALL"]);
        if let Some(owner) = owner {
            desk.set("k", owner);
        }
        desk.list(odd);
        let error = desk.try_wait("me", 0, 1000, "").unwrap_err();
        assert!(is_wrong_type(&error), "{odd}: {error}");
        if odd != "k" {
            assert_eq!(desk.owner().as_deref(), owner, "{odd}");
        }
        assert_eq!(desk.ask::<usize>(&["LLEN", odd]), 1);
    }
}

#[test]
fn without_the_right_to_sorted_sets_nobody_is_filed() {
    let mut desk = Desk::new();
    desk.set("k", "theirs");
    desk.login("setless", "-@sortedset");
    let error = desk.try_wait("me", 0, 1000, "").unwrap_err();
    assert!(error.to_string().contains("can't run this command") || error.to_string().contains("ACL"), "{error}");
    assert_eq!(desk.ask::<usize>(&["EXISTS", QUEUE, WAITERS]), 0);
    let _: () = desk.ask(&["DEL", "k"]);
    desk.wait("me", 0).fence();
    assert_eq!(desk.run(RELEASE, &["me"]), "1");
}
