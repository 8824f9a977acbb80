//! The referees by tables: each objects to what breaks its promise, and to nothing else.

use super::*;

fn hold(fence: u64, sent: Stamp, acquired: Stamp, valid: Stamp) -> Hold {
    Hold { key: "k".to_owned(), fence, sent, acquired, valid, ttl: 100, ..Hold::default() }
}

fn story(holds: &[Hold]) -> Story {
    Story { holds: holds.to_vec(), ..Story::default() }
}

fn forgetting(holds: &[Hold], key: Option<&str>, at: Stamp) -> Story {
    let losses = vec![Loss { key: key.map(str::to_owned), from: at, to: at + 1 }];
    Story { losses, ..story(holds) }
}

#[test]
fn two_that_are_valid_at_once_are_an_overlap() {
    let (first, second) = (hold(1, 0, 10, 100), hold(2, 50, 60, 150));
    assert_eq!(holds_never_overlap(&story(&[second.clone(), first.clone()])).len(), 1);
    let apart = [
        Hold { valid: 60, ..first.clone() },
        Hold { release: Some(60), ..first.clone() },
        Hold { lost: Some(59), ..first.clone() },
        Hold { key: "other".to_owned(), ..first },
    ];
    for first in apart {
        assert!(holds_never_overlap(&story(&[first.clone(), second.clone()])).is_empty(), "{first:?}");
    }
}

#[test]
fn an_overlap_with_one_that_is_no_neighbour_in_time_is_seen() {
    let holds = [hold(1, 0, 1, 90), hold(2, 2, 3, 4), hold(3, 5, 6, 7)];
    assert_eq!(holds_never_overlap(&story(&holds)).len(), 2);
}

#[test]
fn one_that_was_returned_when_its_lease_was_over_overlaps_nothing() {
    assert!(holds_never_overlap(&story(&[hold(1, 0, 70, 60), hold(2, 61, 65, 90)])).is_empty());
}

#[test]
fn an_overlap_is_excused_by_a_loss_of_the_key_and_for_no_longer_than_the_lease_that_it_ended() {
    let (first, second) = (hold(1, 0, 10, 100), hold(2, 50, 60, 150));
    let flags = |key, at, first: &Hold| holds_never_overlap(&forgetting(&[first.clone(), second.clone()], key, at));
    assert!(flags(None, 30, &first).is_empty() && flags(Some("k"), 30, &first).is_empty());
    assert_eq!(flags(Some("other"), 30, &first).len(), 1);
    assert_eq!(flags(None, 70, &first).len(), 1, "both had it before the loss");
    let renewed = Hold { valid: 140, ..first };
    assert_eq!(flags(None, 30, &renewed).len(), 1, "it was renewed after the loss");
}

#[test]
fn a_forgotten_lease_may_be_returned_after_one_that_was_granted_later() {
    let holds = [hold(1, 0, 60, 100), hold(2, 40, 50, 130)];
    assert!(holds_never_overlap(&forgetting(&holds, None, 30)).is_empty());
    assert!(!holds_never_overlap(&story(&holds)).is_empty());
    let brief = Hold { release: Some(55), ..holds[1].clone() };
    assert!(fences_grow(&forgetting(&[holds[0].clone(), brief.clone()], None, 30)).is_empty());
    assert!(!fences_grow(&story(&[holds[0].clone(), brief])).is_empty());
}

#[test]
fn fences_must_grow_also_over_a_loss_and_be_distinct() {
    let first = Hold { release: Some(20), ..hold(5, 0, 10, 100) };
    for (fence, wrong) in [(6, 0), (5, 1), (4, 1)] {
        let holds = [first.clone(), hold(fence, 30, 40, 120)];
        assert_eq!(fences_grow(&forgetting(&holds, None, 25)).is_empty(), wrong == 0, "{fence}");
        assert_eq!(fences_grow(&story(&holds)).is_empty(), wrong == 0, "{fence}");
    }
    // At the same time, by a loss: in any order, but not the same.
    let twins = [hold(7, 0, 10, 100), hold(7, 5, 11, 100)];
    assert_eq!(fences_grow(&forgetting(&twins, None, 6)).len(), 1);
    let elsewhere = [first, Hold { key: "other".to_owned(), ..hold(5, 30, 40, 120) }];
    assert!(fences_grow(&story(&elsewhere)).is_empty());
}

#[test]
fn an_update_is_lost_if_a_value_comes_twice_or_a_lower_fence_is_let_in() {
    assert!(no_update_is_lost(&[(3, 1), (3, 2), (9, 3)]).is_empty());
    assert_eq!(no_update_is_lost(&[(3, 1), (4, 1)]).len(), 1);
    assert_eq!(no_update_is_lost(&[(3, 1), (2, 2)]).len(), 1);
}

#[test]
fn only_fences_may_be_left_and_they_for_a_day() {
    let fence = |ttl| ("distlock:fence:{k}".to_owned(), ttl);
    let left = |key| Left { keys: vec![key], ..Left::default() };
    assert!(nothing_is_left(&left(fence(86_400_000))).is_empty());
    for key in [fence(-1), fence(86_400_001), ("k".to_owned(), 5), ("distlock:queue:{k}".to_owned(), 5)] {
        assert_eq!(nothing_is_left(&left(key.clone())).len(), 1, "{key:?}");
    }
    let more =
        Left { channels: vec!["c".to_owned()], connections: 1, threads: vec!["t".to_owned()], ..Left::default() };
    assert_eq!(nothing_is_left(&more).len(), 3);
}

#[test]
fn a_call_is_late_after_its_bound_without_the_time_for_which_its_process_stood_still() {
    let ms = nanos(Duration::from_millis(1));
    let flags = |call: Call, story: Story| {
        let story = Story { calls: vec![call], calm: 1000 * ms, ..story };
        calls_end_in_time(&story, Duration::from_millis(10), Duration::from_millis(500)).len()
    };
    let call = |to, bound: Option<u64>| Call { pid: 7, from: 0, to, bound, ..Call::default() };
    let bounded = |to: u64| call(Some(to * ms), Some(100 * ms));
    assert_eq!(flags(bounded(110), Story::default()), 0);
    assert_eq!(flags(bounded(111), Story::default()), 1);
    let stopped = |pid| Story { stops: vec![(pid, 50 * ms, 90 * ms)], ..Story::default() };
    assert_eq!(flags(bounded(150), stopped(7)), 0);
    assert_eq!(flags(bounded(150), stopped(8)), 1);
    assert_eq!(flags(call(None, Some(1)), Story::default()), 1);
    assert_eq!(flags(call(None, Some(1)), Story { killed: vec![7], ..Story::default() }), 0);
    assert_eq!(flags(call(Some(1500 * ms), None), Story::default()), 0);
    assert_eq!(flags(call(Some(1501 * ms), None), Story::default()), 1);
}
