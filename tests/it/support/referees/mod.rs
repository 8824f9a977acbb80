//! The referees: what must hold of a whole run, whoever the lockers were. Pure: they judge what was
//! written down, and say what they object to. One each for the suite's invariants I1 to I6; that of I4
//! is a module of its own.

pub(crate) mod foreign;

use std::{collections::BTreeMap, fmt, time::Duration};

use super::story::{Call, Hold, Loss, Stamp, Story, nanos};

/// Which promise is broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Referee {
    /// Two guards of one key are never both valid.
    I1,
    /// Fences grow with the order of the holds, and no two are equal.
    I2,
    /// A resource that looks at fences loses no update.
    I3,
    /// Nothing touches another's token.
    I4,
    /// Nothing is left behind.
    I5,
    /// Every call ends in time.
    I6,
}

/// A referee's objection.
#[derive(Clone, Debug)]
pub(crate) struct Flag {
    pub(crate) by: Referee,
    pub(crate) what: String,
}

impl Flag {
    pub(crate) fn new(by: Referee, what: String) -> Flag {
        Flag { by, what }
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.by, self.what)
    }
}

/// I1. Where the server forgot a lease, another's may overlap what is left of it, and no more than that.
pub(crate) fn holds_never_overlap(story: &Story) -> Vec<Flag> {
    let mut flags = Vec::new();
    for holds in by_key(story).into_values() {
        let mut standing: Vec<&Hold> = Vec::new();
        for hold in sorted(holds.into_iter().filter(|hold| is_definite(hold)), |hold| hold.acquired) {
            standing.retain(|earlier| earlier.end() > hold.acquired);
            let overlapped = standing.iter().filter(|earlier| !is_excused(story, earlier, hold));
            flags.extend(
                overlapped
                    .map(|earlier| Flag::new(Referee::I1, format!("two valid at once: {earlier:?} and {hold:?}"))),
            );
            standing.push(hold);
        }
    }
    flags
}

/// I2.
pub(crate) fn fences_grow(story: &Story) -> Vec<Flag> {
    let mut flags = Vec::new();
    for holds in by_key(story).into_values() {
        // Who asked when another had it already, whatever the server forgot in between.
        flags.extend(grow(&holds, &holds, |hold| hold.acquired, |hold| hold.sent));
        // Who had it after another, unless its lease was granted earlier and is forgotten.
        let definite: Vec<&Hold> = holds.iter().copied().filter(|hold| is_definite(hold)).collect();
        let after: Vec<&Hold> = definite.iter().copied().filter(|hold| !stood_across(story, hold)).collect();
        flags.extend(grow(&definite, &after, Hold::end, |hold| hold.acquired));
        let by_fence = sorted(holds.iter().copied(), |hold| hold.fence);
        let twins = by_fence.windows(2).filter(|pair| pair[0].fence == pair[1].fence);
        flags.extend(twins.map(|pair| Flag::new(Referee::I2, format!("one fence: {:?} and {:?}", pair[0], pair[1]))));
    }
    flags
}

/// Each of `later` that began when one of `earlier` was over has the higher fence.
fn grow(
    earlier: &[&Hold],
    later: &[&Hold],
    over: impl Fn(&Hold) -> Stamp,
    began: impl Fn(&Hold) -> Stamp,
) -> Vec<Flag> {
    let mut earlier = sorted(earlier.iter().copied(), &over).into_iter().peekable();
    let (mut highest, mut flags): (Option<&Hold>, _) = (None, Vec::new());
    for hold in sorted(later.iter().copied(), &began) {
        while let Some(before) = earlier.next_if(|before| over(before) < began(hold)) {
            highest = highest.into_iter().chain([before]).max_by_key(|hold| hold.fence);
        }
        if let Some(highest) = highest.filter(|highest| highest.fence >= hold.fence) {
            flags.push(Flag::new(Referee::I2, format!("a fence did not grow: {highest:?}, later {hold:?}")));
        }
    }
    flags
}

/// I3, of what a resource accepted, as `(fence, value)` in its own order: each value is the one before
/// and one.
pub(crate) fn no_update_is_lost(writes: &[(u64, u64)]) -> Vec<Flag> {
    let mut flags = Vec::new();
    let mut last = (0, 0);
    for &(fence, value) in writes {
        if fence < last.0 || value != last.1 + 1 {
            let what = format!("{value} with fence {fence} was written over {} with fence {}", last.1, last.0);
            flags.push(Flag::new(Referee::I3, what));
        }
        last = (fence, value);
    }
    flags
}

/// What there is on a server, and in the processes that used it, when all is over.
#[derive(Default, Debug)]
pub(crate) struct Left {
    /// Every key, with what `PTTL` says.
    pub(crate) keys: Vec<(String, i64)>,
    pub(crate) channels: Vec<String>,
    /// Connections more than at the start.
    pub(crate) connections: usize,
    pub(crate) threads: Vec<String>,
}

/// I5.
pub(crate) fn nothing_is_left(left: &Left) -> Vec<Flag> {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let may_stay = |key: &str, ttl: i64| key.starts_with("distlock:fence") && (1..=DAY).contains(&ttl);
    let keys = left.keys.iter().filter(|(key, ttl)| !may_stay(key, *ttl));
    let keys = keys.map(|(key, ttl)| format!("key {key:?} with a ttl of {ttl} ms"));
    let channels = left.channels.iter().map(|channel| format!("channel {channel:?}"));
    let threads = left.threads.iter().map(|thread| format!("thread {thread:?}"));
    let connections = (left.connections > 0).then(|| format!("{} connections", left.connections));
    let all = keys.chain(channels).chain(threads).chain(connections);
    all.map(|what| Flag::new(Referee::I5, format!("left behind: {what}"))).collect()
}

/// I6. A call may take its bound and `slack` more; one that waits for others ends within `patience`
/// after the last fault. Time for which its process stood still does not count.
pub(crate) fn calls_end_in_time(story: &Story, slack: Duration, patience: Duration) -> Vec<Flag> {
    let objection = |call: &Call| match (call.to, call.bound) {
        (None, _) if story.killed.contains(&call.pid) => None,
        (None, _) => Some("never ended".to_owned()),
        (Some(to), Some(bound)) => {
            let took = (to - call.from).saturating_sub(stood_still(story, call, to));
            (took > bound + nanos(slack)).then(|| format!("took {:?}", Duration::from_nanos(took)))
        }
        (Some(to), None) => {
            let after = to.saturating_sub(call.from.max(story.calm));
            (after > nanos(patience)).then(|| format!("waited {:?} in calm", Duration::from_nanos(after)))
        }
    };
    let flag = |call: &Call| Some(Flag::new(Referee::I6, format!("{} {}: {call:?}", call.what, objection(call)?)));
    story.calls.iter().filter_map(flag).collect()
}

fn stood_still(story: &Story, call: &Call, to: Stamp) -> Stamp {
    let of_it = story.stops.iter().filter(|(pid, ..)| *pid == call.pid);
    of_it.map(|&(_, from, until)| until.min(to).saturating_sub(from.max(call.from))).sum()
}

fn by_key(story: &Story) -> BTreeMap<&str, Vec<&Hold>> {
    let mut keys: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    story.holds.iter().for_each(|hold| keys.entry(&hold.key).or_default().push(hold));
    keys
}

fn sorted<'a>(holds: impl Iterator<Item = &'a Hold>, by: impl Fn(&Hold) -> u64) -> Vec<&'a Hold> {
    let mut holds: Vec<_> = holds.collect();
    holds.sort_by_key(|hold| by(hold));
    holds
}

/// Was there a time at which its holder had it and counted on it?
fn is_definite(hold: &Hold) -> bool {
    hold.acquired < hold.end()
}

fn losses<'a>(story: &'a Story, key: &'a str) -> impl Iterator<Item = &'a Loss> {
    story.losses.iter().filter(move |loss| loss.key.as_deref().is_none_or(|of| of == key))
}

/// Was its lease granted before a loss, and returned after it?
fn stood_across(story: &Story, hold: &Hold) -> bool {
    losses(story, &hold.key).any(|loss| hold.sent <= loss.to && loss.from <= hold.acquired)
}

/// Did the server forget one of them before the other was acquired? Its holder finds out when it renews,
/// at the latest when the lease ends that it had then.
fn is_excused(story: &Story, earlier: &Hold, later: &Hold) -> bool {
    losses(story, &later.key)
        .filter(|loss| loss.from <= later.acquired)
        .any(|loss| [earlier, later].iter().any(|hold| hold.sent <= loss.to && hold.end() <= loss.to + hold.ttl))
}

#[cfg(test)]
mod tests;
