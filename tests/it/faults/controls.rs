//! Negative controls: the referees flag lockers that are broken, each by the referee whose promise it
//! breaks; and in the same scene they find nothing to object to in the crate's own lock.

use std::{collections::BTreeSet, thread, time::Duration};

use super::broken::{self, IO, KEY, Locker, Make, TTL, wall};
use crate::support::proxy::contains;
use crate::support::referees::{self, Flag, Referee};
use crate::support::story::{Call, Hold, Loss, Story, nanos, now};
use crate::support::witness::{self, Witness};
use crate::support::{Fate, Proxy, SLACK, Server, Way, eventually, resource};

const LONG: Duration = Duration::from_secs(10);

/// What the referees object to, once the broken one and once the sound one has played the scene.
#[track_caller]
fn tells_apart(scene: fn(Make) -> BTreeSet<Referee>, broken: Make, by: Referee) {
    let flags = scene(broken);
    assert!(flags.contains(&by), "{by:?} does not see it: {flags:?}");
    assert_eq!(scene(broken::sound), BTreeSet::new(), "the crate's own is innocent");
}

#[test]
fn a_bare_del_is_flagged_by_i4() {
    tells_apart(late_release, broken::bare_del, Referee::I4);
}

#[test]
fn a_lease_that_counts_from_the_reply_is_flagged_by_i1() {
    tells_apart(late_reply, broken::no_clock_check, Referee::I1);
}

#[test]
fn a_setnx_getset_lock_is_flagged_by_i4() {
    let (first, flags) = late_getset();
    let of_the_first = |flag: &Flag| flag.by == Referee::I4 && flag.what.contains(&first.token);
    assert!(flags.iter().any(of_the_first), "{flags:?}");
}

#[test]
fn a_setnx_getset_lock_with_a_fast_clock_is_flagged_by_i1() {
    let mut stage = Stage::set();
    let (mut right, mut fast) = (broken::getset(&stage.server.url()), broken::getset_ahead(&stage.server.url()));
    stage.play(&mut *right);
    stage.play(&mut *fast);
    fast.release();
    assert!(stage.judge((right, fast)).contains(&Referee::I1));
}

#[test]
fn a_plain_incr_fence_over_a_flushall_is_flagged_by_i2() {
    tells_apart(flushall, broken::incr_fence, Referee::I2);
}

#[test]
fn a_lock_without_fences_is_flagged_by_i3() {
    tells_apart(stalled_writer, broken::no_fence, Referee::I3);
}

#[test]
fn a_key_without_a_ttl_is_flagged_by_i5() {
    tells_apart(dropped, broken::getset, Referee::I5);
}

#[test]
fn a_call_without_a_timeout_is_flagged_by_i6() {
    tells_apart(held_reply, broken::no_timeout, Referee::I6);
}

/// A server with its witness, and what the lockers did.
struct Stage {
    server: Server,
    witness: Witness,
    story: Story,
    accepted: Vec<(u64, u64)>,
}

impl Stage {
    fn set() -> Stage {
        let server = Witness::server();
        let witness = Witness::of(&server, &[KEY]);
        Stage { server, witness, story: Story::default(), accepted: Vec::new() }
    }

    /// Acquires as soon as it can be had.
    fn play(&mut self, locker: &mut dyn Locker) -> Hold {
        let mut hold = None;
        eventually(LONG, "it can be had", || {
            hold = locker.acquire();
            hold.is_some()
        });
        let hold = hold.expect("a hold");
        self.story.holds.push(hold.clone());
        hold
    }

    /// Releases what was acquired last.
    fn end(&mut self, locker: &mut dyn Locker) {
        self.story.holds.last_mut().expect("a hold").release = Some(now());
        locker.release();
    }

    /// The lockers go, and the referees say what they think.
    fn judge<L>(self, lockers: L) -> BTreeSet<Referee> {
        drop(lockers);
        let left = witness::left(&self.server, Vec::new(), 2 * TTL + IO);
        let flags = [
            referees::holds_never_overlap(&self.story),
            referees::fences_grow(&self.story),
            referees::no_update_is_lost(&self.accepted),
            self.witness.flags(&self.server),
            referees::nothing_is_left(&left),
            referees::calls_end_in_time(&self.story, SLACK, LONG),
        ];
        flags.iter().flatten().map(|flag| flag.by).collect()
    }
}

/// One releases when its lease is over and the lock another's.
fn late_release(make: Make) -> BTreeSet<Referee> {
    let mut stage = Stage::set();
    let (mut slow, mut next) = (make(&stage.server.url()), make(&stage.server.url()));
    stage.play(&mut *slow);
    stage.play(&mut *next);
    slow.release();
    stage.end(&mut *next);
    stage.judge((slow, next))
}

/// The reply to one's attempt comes when its lease is over and the lock another's.
fn late_reply(make: Make) -> BTreeSet<Referee> {
    let mut stage = Stage::set();
    let proxy = Proxy::to(stage.server.port());
    let (mut slow, mut next) = (make(&proxy.url()), make(&stage.server.url()));
    stage.play(&mut *slow);
    stage.end(&mut *slow);
    proxy.rule(Way::Reply, Fate::Hold, 1, |request| contains(request, b"EVAL"));
    let late = thread::scope(|scope| {
        let late = scope.spawn(|| slow.acquire());
        eventually(LONG, "its reply is on the way", || proxy.held() == 1);
        stage.play(&mut *next);
        proxy.release();
        late.join().expect("an answer")
    });
    stage.story.holds.extend(late);
    next.release();
    stage.judge((slow, next, proxy))
}

/// Two find an old value that is over, and both replace it: the second one replaces the first one's.
fn late_getset() -> (Hold, Vec<Flag>) {
    let mut stage = Stage::set();
    let _: () = stage.server.ask(&["SET", KEY, &(wall() - 1000).to_string()]);
    let proxy = Proxy::to(stage.server.port());
    let (mut slow, mut first) = (broken::getset(&proxy.url()), broken::getset(&stage.server.url()));
    proxy.rule(Way::Request, Fate::Hold, 1, |request| contains(request, b"GETSET"));
    let first = thread::scope(|scope| {
        let late = scope.spawn(|| slow.acquire());
        eventually(LONG, "it has seen that the old value is over", || proxy.held() == 1);
        let first = stage.play(&mut *first);
        proxy.release();
        assert!(late.join().expect("an answer").is_none(), "it does not believe that it has it, either");
        first
    });
    (first, stage.witness.flags(&stage.server))
}

/// The server forgets everything between two holds.
fn flushall(make: Make) -> BTreeSet<Referee> {
    let mut stage = Stage::set();
    let (mut before, mut after) = (make(&stage.server.url()), make(&stage.server.url()));
    for _ in 0..3 {
        stage.play(&mut *before);
        stage.end(&mut *before);
    }
    let from = now();
    let _: () = stage.server.ask(&["FLUSHALL"]);
    stage.story.losses.push(Loss { key: None, from, to: now() });
    stage.play(&mut *after);
    stage.end(&mut *after);
    stage.judge((before, after))
}

/// One reads, and writes when its lease is over and another has read and written.
fn stalled_writer(make: Make) -> BTreeSet<Referee> {
    let mut stage = Stage::set();
    let store = Server::start();
    let mut number = resource::Resource::at(&store.url());
    let (mut slow, mut next) = (make(&stage.server.url()), make(&stage.server.url()));
    let stalled = stage.play(&mut *slow);
    let old = number.read(KEY, stalled.fence).expect("nobody was before it");
    let hold = stage.play(&mut *next);
    let new = number.read(KEY, hold.fence).expect("the highest fence");
    number.write(KEY, hold.fence, new + 1).expect("the highest fence");
    number.write(KEY, stalled.fence, old + 1);
    stage.accepted = resource::accepted(&store, KEY);
    stage.end(&mut *next);
    stage.judge((slow, next))
}

/// Its holder is gone, and did not release it.
fn dropped(make: Make) -> BTreeSet<Referee> {
    let mut stage = Stage::set();
    let mut locker = make(&stage.server.url());
    stage.play(&mut *locker);
    stage.judge(locker)
}

/// A reply that comes after more than any timeout.
fn held_reply(make: Make) -> BTreeSet<Referee> {
    let mut stage = Stage::set();
    let proxy = Proxy::to(stage.server.port());
    let mut locker = make(&proxy.url());
    stage.play(&mut *locker);
    stage.end(&mut *locker);
    proxy.rule(Way::Reply, Fate::Hold, 1, |request| contains(request, b"EVAL"));
    let call = thread::scope(|scope| {
        let call = scope.spawn(|| {
            let from = now();
            let won = locker.acquire();
            let call = Call { what: "one attempt".to_owned(), from, to: Some(now()), ..Call::default() };
            assert!(won.is_none(), "it is too late for a lease");
            Call { bound: Some(nanos(IO)), ..call }
        });
        eventually(LONG, "its reply is on the way", || proxy.held() == 1);
        thread::sleep(IO + 2 * SLACK);
        proxy.release();
        call.join().expect("an answer")
    });
    stage.story.calls.push(call);
    stage.judge((locker, proxy))
}
