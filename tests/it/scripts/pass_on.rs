//! Handing over: what `release`, `leave` and `force` do where somebody waits.

use super::*;

/// The ways to let go of what `me` holds, with their answers where the lock is handed over, just freed,
/// and freed because its waiter could not be told.
const WAYS: [(&str, &[&str], [&str; 3]); 3] = [
    (RELEASE, &["me"], ["2", "1", "3"]),
    (LEAVE, &["me", "", "0"], ["2 1", "1 1", "3 1"]),
    (FORCE, &[], ["2", "1", "1"]),
];

/// A server where `me` holds `k`.
fn held() -> Desk {
    let mut desk = Desk::new();
    again(&mut desk);
    desk
}

fn again(desk: &mut Desk) {
    let _: () = desk.ask(&["FLUSHALL"]);
    desk.held("me", "30000");
}

#[test]
fn the_first_waiter_is_the_owner_with_the_fence_after_until_it_is_back() {
    let mut desk = held();
    for (script, args, [handed_over, ..]) in WAYS {
        for (left, least, most) in [(40, 250, 300), (1000, 900, 1000), (60_000, 1900, 2000)] {
            again(&mut desk);
            let before: u64 = desk.fence().unwrap().parse().unwrap();
            desk.entrant("first", 1, left, "");
            desk.entrant("second", 2, 60_000, "");
            assert_eq!(desk.run(script, args), handed_over);
            assert_eq!(desk.owner().as_deref(), Some("first"));
            let px = desk.pttl("k");
            assert!((least..=most).contains(&px), "{left}: {px}");
            let fence: u64 = desk.fence().unwrap().parse().unwrap();
            assert!(fence >= before + 17, "{before} {fence}");
            assert!(desk.pttl(FENCE) > DAY - 1000);
            assert_eq!((desk.queue(), desk.entry("first")), (vec!["second".to_owned()], None));
        }
    }
}

#[test]
fn a_grant_has_a_fence_of_its_own_also_where_the_clock_stands_behind() {
    let mut desk = held();
    let ahead = desk.clock() + 3_600_000_000;
    desk.set(FENCE, &ahead.to_string());
    desk.entrant("first", 1, 60_000, "");
    assert_eq!(desk.run(RELEASE, &["me"]), "2");
    assert_eq!(desk.fence(), Some((ahead + 17).to_string()), "all its digits");
}

#[test]
fn live_waiters_get_the_lock_in_the_order_of_their_places() {
    let mut desk = held();
    let places = [("c", 30), ("a", 10), ("d", 5_000_000_000_000_000), ("b", 20)];
    for (token, place) in places {
        desk.entrant(token, place, 60_000, "");
    }
    let mut owners = vec!["me".to_owned()];
    while desk.run(RELEASE, &[owners.last().unwrap().as_str()]) == "2" {
        owners.push(desk.owner().unwrap());
    }
    assert_eq!(owners, ["me", "a", "b", "c", "d"]);
    assert_eq!(desk.ask::<usize>(&["EXISTS", "k", QUEUE, WAITERS]), 0);
}

#[test]
fn the_message_says_what_was_granted_and_is_sent_for_a_grant_that_stands() {
    const KEY: &str = "orders of {today} 42";
    let helpers = ["fence", "queue", "waiters"].map(|name| format!("distlock:{name}/{KEY}"));
    let mut desk = Desk::new();
    let mut ear = Ear::new(&desk, "ear");
    let mut monitor = desk.server.connection();
    redis::cmd("MONITOR").exec(&mut monitor).unwrap();
    desk.set(KEY, "me");
    let back_by = (desk.clock() / 1000 + 60_000).to_string();
    let _: () = desk.ask(&["ZADD", &helpers[1], "1", "first"]);
    let _: () = desk.ask(&["HSET", &helpers[2], "first", &format!("{back_by} 5000000001 ear")]);
    let mut command = redis::cmd("EVAL");
    command.arg(whole(RELEASE)).arg(4).arg(KEY).arg(&helpers).arg(4711).arg("me");
    assert_eq!(command.query::<String>(&mut desk.connection).unwrap(), "2 4711");
    let fence: String = desk.ask(&["GET", &helpers[0]]);
    assert_eq!(ear.hear(), format!("5000000001 2000 {fence} first {KEY}"));
    let mut writes = Vec::new();
    while writes.len() < 3 {
        let line: String = redis::from_redis_value(monitor.recv_response().unwrap()).unwrap();
        if line.contains(" lua] \"SET\"") || line.contains(" lua] \"PUBLISH\"") {
            writes.push(line);
        }
    }
    assert!(writes[0].contains(&helpers[0]), "the fence first: {writes:?}");
    assert!(writes[1].contains("\"first\"") && writes[2].contains("\"PUBLISH\""), "then the grant: {writes:?}");
}

#[test]
fn no_message_is_sent_to_who_was_not_made_the_owner() {
    let mut desk = held();
    let mut ear = Ear::new(&desk, "ear");
    for (script, args, [handed_over, ..]) in WAYS {
        again(&mut desk);
        desk.entrant("over", 1, 0, "ear");
        desk.entrant("me", 2, 60_000, "ear");
        desk.entrant("first", 3, 60_000, "ear");
        desk.entrant("second", 4, 60_000, "ear");
        assert_eq!(desk.run(script, args), handed_over);
        let _: usize = desk.ask(&["PUBLISH", "ear", "nothing more"]);
        let message = ear.hear();
        assert!(message.starts_with("77 ") && message.ends_with(" first k"), "{message}");
        assert_eq!(ear.hear(), "nothing more");
    }
}

#[test]
fn who_is_dead_is_skipped_and_forgotten() {
    let mut desk = held();
    let _ear = Ear::new(&desk, "ear");
    for (script, args, [handed_over, freed, _]) in WAYS {
        for anybody in [true, false] {
            again(&mut desk);
            desk.entrant("back-by over", 1, 0, "ear");
            desk.entrant("its listener is gone", 2, 60_000, "nobody");
            for (place, odd) in [(3, "junk"), (4, ""), (5, "99999999999999")] {
                desk.entrant(odd, place, 0, "");
                let _: () = desk.ask(&["HSET", WAITERS, odd, odd]);
            }
            desk.entrant("no entry", 6, 60_000, "");
            let _: () = desk.ask(&["HDEL", WAITERS, "no entry"]);
            desk.entrant("me", 7, 60_000, "ear");
            if anybody {
                desk.entrant("alive", 8, 60_000, "ear");
            }
            assert_eq!(desk.run(script, args), if anybody { handed_over } else { freed });
            assert_eq!(desk.owner().as_deref(), anybody.then_some("alive"));
            assert_eq!(desk.ask::<usize>(&["EXISTS", QUEUE, WAITERS]), 0);
        }
    }
}

#[test]
fn a_call_clears_a_hundred_dead_waiters_and_frees_the_lock() {
    let mut desk = held();
    for (script, args, [_, freed, _]) in WAYS {
        again(&mut desk);
        (1..=250).for_each(|place| desk.entrant(&format!("dead-{place}"), place, 0, ""));
        desk.entrant("alive", 300, 60_000, "");
        assert_eq!(desk.run(script, args), freed);
        assert_eq!((desk.owner(), desk.queue().len()), (None, 151));
    }
}

#[test]
fn a_grant_that_cannot_be_announced_is_taken_back_and_its_waiter_keeps_its_place() {
    let mut desk = held();
    let mut ear = Ear::new(&desk, "ear");
    desk.server.ask::<()>(&["ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish"]);
    desk.server.ask::<()>(&["ACL", "SETUSER", "elsewhere", "on", "nopass", "~*", "resetchannels", "&other", "+@all"]);
    for user in ["mute", "elsewhere"] {
        for (script, args, [.., unannounced]) in WAYS {
            let _: () = desk.ask(&["AUTH", "default", ""]);
            again(&mut desk);
            desk.entrant("first", 1_764_547_200_000_001, 60_000, "ear");
            desk.entrant("second", 1_764_547_200_000_002, 60_000, "");
            let entry = desk.entry("first");
            let _: () = desk.ask(&["AUTH", user, "x"]);
            assert_eq!(desk.run(script, args), unannounced, "{user}");
            let _: () = desk.ask(&["AUTH", "default", ""]);
            assert_eq!(desk.owner(), None, "{user}");
            let places = [("first", 1_764_547_200_000_001), ("second", 1_764_547_200_000_002)];
            assert_eq!(desk.places(), places.map(|(token, place)| (token.to_owned(), place)));
            assert_eq!(desk.entry("first"), entry);
            for helper in [QUEUE, WAITERS] {
                assert!((9000..=10_000).contains(&desk.pttl(helper)), "{helper}");
            }
            let _: usize = desk.ask(&["PUBLISH", "ear", "nothing came"]);
            assert_eq!(ear.hear(), "nothing came");
        }
    }
}

#[test]
fn without_the_right_to_publish_who_looks_by_itself_gets_the_lock_all_the_same() {
    let mut desk = held();
    desk.entrant("first", 1, 60_000, "");
    desk.login("mute", "-publish");
    assert_eq!(desk.run(RELEASE, &["me"]), "2");
    assert_eq!(desk.owner().as_deref(), Some("first"));
}

#[test]
fn without_the_right_to_ask_for_listeners_a_grant_is_made_unchecked() {
    let mut desk = held();
    desk.entrant("first", 1, 60_000, "nobody");
    desk.login("blind", "-pubsub");
    assert_eq!(desk.run(RELEASE, &["me"]), "2");
    assert_eq!(desk.owner().as_deref(), Some("first"));
}

#[test]
fn without_the_right_to_sorted_sets_or_hashes_a_lock_is_freed() {
    let mut desk = held();
    for (user, rights) in [("setless", "-@sortedset"), ("hashless", "-@hash")] {
        for (script, args, [_, freed, _]) in WAYS {
            let _: () = desk.ask(&["AUTH", "default", ""]);
            again(&mut desk);
            desk.entrant("first", 1, 60_000, "");
            desk.login(user, rights);
            assert_eq!(desk.run(script, args), freed, "{user}");
            assert_eq!(desk.owner(), None, "{user}");
        }
    }
}

#[test]
fn a_helper_key_of_another_type_keeps_no_lock_also_where_somebody_waits() {
    let mut desk = held();
    for (script, args, [_, freed, _]) in WAYS {
        for odd in [FENCE, QUEUE, WAITERS] {
            again(&mut desk);
            desk.entrant("first", 1, 60_000, "");
            desk.list(odd);
            // Not a renewal of another lease, but the fence of this one is lost.
            let answer = desk.run(script, args);
            assert_eq!(answer, freed, "{odd}");
            assert_eq!(desk.owner(), None, "{odd}");
        }
    }
}

#[test]
fn a_full_memory_hands_over_what_is_held() {
    let mut desk = held();
    let _ear = Ear::new(&desk, "ear");
    for (script, args, [handed_over, ..]) in WAYS {
        let _: () = desk.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        again(&mut desk);
        desk.entrant("first", 1, 60_000, "ear");
        let _: () = desk.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(desk.run(script, args), handed_over);
        assert_eq!(desk.owner().as_deref(), Some("first"));
    }
}

#[test]
fn a_replica_hands_nothing_over_and_says_what_it_is() {
    let mut desk = held();
    for owner in [None, Some("me"), Some("theirs")] {
        let _: () = desk.ask(&["REPLICAOF", "NO", "ONE"]);
        let _: () = desk.ask(&["FLUSHALL"]);
        if let Some(owner) = owner {
            desk.set("k", owner);
        }
        desk.entrant("first", 1, 60_000, "");
        let _: () = desk.ask(&["REPLICAOF", "127.0.0.1", "1"]);
        for (script, args, _) in &WAYS[..2] {
            let error = desk.try_run(script, args).expect_err("a replica accepts nothing");
            assert!(is_read_only(&error), "{owner:?}: {error}");
        }
        assert_eq!((desk.owner().as_deref(), desk.queue().len()), (owner, 1));
    }
}

#[test]
fn a_release_that_finds_no_lock_serves_who_waits_and_still_says_so() {
    let mut desk = held();
    for (script, args, gone) in [(RELEASE, &["me"][..], "-1"), (LEAVE, &["me", "", "0"], "-1 1")] {
        let _: () = desk.ask(&["FLUSHALL"]);
        desk.entrant("first", 1, 60_000, "");
        assert_eq!(desk.run(script, args), gone, "the section was not covered");
        assert_eq!(desk.owner().as_deref(), Some("first"));
    }
}

#[test]
fn a_release_of_anothers_lock_serves_nobody() {
    let mut desk = held();
    for (script, args, others) in
        [(RELEASE, &["you"][..], "0"), (LEAVE, &["you", "", "0"], "0 1"), (LEAVE, &["me", "5", "0"], "0 1")]
    {
        again(&mut desk);
        desk.entrant("first", 1, 60_000, "");
        assert_eq!(desk.run(script, args), others);
        assert_eq!((desk.owner().as_deref(), desk.queue().len()), (Some("me"), 1));
    }
}

#[test]
fn a_waiter_that_leaves_is_not_granted_what_it_frees() {
    let mut desk = held();
    desk.entrant("me", 1, 60_000, "");
    assert_eq!(desk.run(LEAVE, &["me", "", "0"]), "1 1");
    assert_eq!(desk.ask::<usize>(&["EXISTS", "k", QUEUE, WAITERS]), 0);
    // With a fence: the grant that its message told of, and no other.
    desk.entrant("me", 1, 60_000, "");
    desk.entrant("next", 2, 60_000, "");
    desk.held("other", "5000");
    assert_eq!(desk.run(RELEASE, &["other"]), "2");
    let fence = desk.fence().unwrap();
    assert_eq!(desk.owner().as_deref(), Some("me"));
    assert_eq!(desk.run(LEAVE, &["me", "17", "0"]), "0 1");
    assert_eq!(desk.run(LEAVE, &["me", &fence, "0"]), "2 1");
    assert_eq!(desk.owner().as_deref(), Some("next"));
}
