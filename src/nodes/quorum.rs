//! A majority of several independent servers (Redlock), with fences.
//!
//! The same scripts as on one server, fanned out side by side; one token on all of them. A lease is that of
//! the round which a majority answered, counted from before its first send.
//!
//! Why fences grow: two leases have a server in common, on which the later `try` found the earlier fence
//! stored and answered a higher one. That holds for the highest fence of a majority only if it stands on a
//! majority: it does where all answered the same, which a common hint makes the rule; else it is written
//! back, and counted only where the key still stands.

mod votes;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    Attempt, Attempted, Condition, HandsOver, Key, Nodes, NotAfter, Order, Outcome, Owner, Performed, Unwritten,
    Verdict, Writes, Written, remaining,
};
use crate::clock::Moment;
use crate::keeping::lease::valid_until;
use crate::nodes::Single;
use crate::server::script::{Released, Renewed, Request, Try, Verb, without_number};
use crate::server::{Class, Failure, Fan, Link, Pool, Reply, fan_out};
use votes::Votes;

/// Clocks that agree within this answer the same fence.
const APART: u64 = 5_000;

/// For what is on its way in a socket or a queue.
const SLACK: Duration = Duration::from_millis(50);

pub(crate) struct Quorum {
    nodes: Vec<Node>,
    /// The number of the next call.
    numbers: AtomicU64,
    /// Guards which nodes may still execute something for a token: what they say of it is not certain.
    open: Mutex<HashMap<String, Open>>,
}

struct Node {
    name: String,
    pool: Arc<Pool>,
    /// A way of its own for what is asked of one node alone.
    single: Single,
    /// Smoothed, in µs.
    round_trip: AtomicU64,
}

/// Nodes, a bit for each, where a call for a token has no answer, and how long one can be executed.
#[derive(Clone, Copy)]
struct Open {
    nodes: u64,
    until: Moment,
}

/// What one node answered to one request, or why not; `true`: it may be executed without an answer.
type Heard<T> = Option<(Result<T, Failure>, bool)>;

impl Quorum {
    /// Of named servers, an odd number of them.
    pub(crate) fn new(servers: Vec<(String, Arc<Pool>)>) -> Quorum {
        let node = |(name, pool): (String, Arc<Pool>)| Node {
            name,
            single: Single::new(Arc::clone(&pool) as Arc<dyn Link>),
            pool,
            round_trip: AtomicU64::new(0),
        };
        Quorum { nodes: servers.into_iter().map(node).collect(), numbers: AtomicU64::new(1), open: Mutex::default() }
    }

    /// How many are a majority.
    fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Those that answered last, first: what they are asked must not wait for the others.
    fn fan(&self, which: impl Fn(usize) -> bool, width: usize, until: Moment) -> Fan<'_> {
        let mut servers: Vec<_> =
            self.nodes.iter().enumerate().filter(|(i, _)| which(*i)).map(|(i, node)| (i, &node.pool)).collect();
        servers.sort_by_key(|(_, pool)| pool.health().is_down());
        Fan { servers, width, until, patience: until }
    }

    fn is_down(&self, node: usize) -> bool {
        self.nodes[node].pool.health().is_down()
    }

    /// The common hint: above it all nodes whose clocks nearly agree answer the same fence.
    fn hint(&self, of_client: u64, now: Moment) -> u64 {
        let estimates = self.nodes.iter().filter_map(|node| {
            let clock = node.pool.health().clock.at(now)?;
            Some(clock.saturating_add(node.round_trip.load(Relaxed)).saturating_add(APART))
        });
        estimates.max().unwrap_or(0).max(of_client)
    }

    /// Asks one thing of some nodes, and has each reply judged.
    fn poll<'a, T>(
        &'a self,
        which: impl Fn(usize) -> bool,
        until: Moment,
        verb: impl Fn(usize) -> (&'a Key, Verb<'a>),
        parse: fn(&str) -> Option<T>,
        mut enough: impl FnMut(&[Heard<T>]) -> Option<Moment>,
    ) -> Vec<Heard<T>> {
        let mut heard: Vec<Heard<T>> = self.nodes.iter().map(|_| None).collect();
        let fan = self.fan(which, 1, until);
        let mut ask = |i: usize| {
            let (key, verb) = verb(i);
            vec![Request { names: &key.names, n: self.number(), verb }]
        };
        let mut hear = |i: usize, _: usize, reply: Reply| {
            heard[i] = Some(judged(reply, parse));
            enough(&heard)
        };
        fan_out(&fan, &mut ask, &mut hear);
        heard
    }

    /// Sends something to all and waits for no answer: each is owed, and passed over.
    fn tell<'a>(&'a self, which: impl Fn(usize) -> bool, verb: impl Fn(usize) -> (&'a Key, Verb<'a>)) {
        let now = Moment::now();
        let fan = Fan { patience: now, ..self.fan(which, 1, now.after(SLACK)) };
        let mut ask = |i: usize| {
            let (key, verb) = verb(i);
            vec![Request { names: &key.names, n: self.number(), verb }]
        };
        fan_out(&fan, &mut ask, &mut |_, _, _| None);
    }

    fn not_after(&self, node: usize, until: NotAfter) -> u64 {
        let then = Moment::from_bits(until.0.saturating_mul(1_000)).after(SLACK);
        self.nodes[node].pool.health().clock.at_the_latest(then)
    }

    /// `try` on all nodes, until a majority has it or cannot.
    fn try_all<'a>(&'a self, attempt: &'a Attempt<'a>, start: Moment, io: Duration) -> Vec<Heard<Try>> {
        let hint = self.hint(attempt.hint, start);
        let verb = |i: usize| {
            let clock = &self.nodes[i].pool.health().clock;
            let not_after = clock.not_after(Moment::now(), io).unwrap_or(1);
            (attempt.key, Verb::Try { token: attempt.token, ttl: attempt.ttl, hint, not_after })
        };
        let enough = |heard: &[Heard<Try>]| {
            let now = Moment::now();
            let (held, possible) = self.count(heard, |answer| matches!(answer, Try::Held { .. }));
            if held >= self.majority() {
                return Some(a_moment_more(start));
            }
            (possible < self.majority()).then_some(now)
        };
        let heard = self.poll(|_| true, start.after(io), verb, Try::parse, enough);
        let now = Moment::now();
        for (node, answer) in self.nodes.iter().zip(&heard) {
            if let Some((Ok(answer), _)) = answer {
                let (Try::Held { clock, .. } | Try::Taken { clock, .. } | Try::Late { clock }) = *answer;
                node.pool.health().clock.set(clock, now);
            }
        }
        heard
    }

    /// How many said yes, and how many may in the end. One that did not answer the last time counts as failed
    /// until it does.
    fn count<T>(&self, heard: &[Heard<T>], yes: impl Fn(&T) -> bool) -> (usize, usize) {
        let said = heard.iter().filter(|answer| matches!(answer, Some((Ok(answer), _)) if yes(answer))).count();
        let open = (0..heard.len()).filter(|&i| heard[i].is_none() && !self.is_down(i)).count();
        (said, said + open)
    }

    /// The fence on which a majority agrees in time: all that answered said the same, or it is written back.
    fn agree<'a>(&'a self, attempt: &'a Attempt<'a>, held: &[Option<u64>], valid: Moment) -> Option<u64> {
        let fences: Vec<u64> = held.iter().flatten().copied().collect();
        let fence = fences.iter().copied().max()?;
        if fences.iter().filter(|&&answered| answered == fence).count() >= self.majority() {
            return Some(fence);
        }
        let until = valid.min(Moment::now().after(attempt.io));
        let verb = |_| {
            let Attempt { key, token, ttl, .. } = *attempt;
            (key, Verb::Renew { token, ttl, fence: Some(fence), again: 0 })
        };
        let enough = |heard: &[Heard<Renewed>]| {
            let (yes, _) = self.count(heard, |answer| matches!(answer, Renewed::Yes));
            (yes >= self.majority()).then(Moment::now)
        };
        let heard = self.poll(|i| held[i].is_some(), until, verb, Renewed::parse, enough);
        let (yes, _) = self.count(&heard, |answer| matches!(answer, Renewed::Yes));
        (yes >= self.majority() && Moment::now() < valid).then_some(fence)
    }

    /// Gives back what a failed round may have got, on all nodes.
    fn give_up<'a>(&'a self, key: &'a Key, token: &'a str) {
        self.tell(|_| true, |_| (key, Verb::Release { token }));
    }

    /// Takes note that these nodes may still execute a call for the token.
    fn note_open(&self, token: &str, nodes: u64, io: Duration) {
        if nodes != 0 {
            let (now, mut open) = (Moment::now(), self.open.lock());
            open.retain(|_, entry| now < entry.until);
            let entry = open.entry(token.to_owned()).or_insert(Open { nodes: 0, until: now });
            (entry.nodes, entry.until) = (entry.nodes | nodes, entry.until.max(now.after(io + 2 * SLACK)));
        }
    }

    fn open(&self, token: &str) -> u64 {
        let open = self.open.lock();
        open.get(token).filter(|entry| Moment::now() < entry.until).map_or(0, |entry| entry.nodes)
    }

    /// What each node said, in one line.
    fn failure<T>(&self, heard: &[Heard<T>], say: impl Fn(&T) -> &'static str) -> Failure {
        votes::failure(self.nodes.iter().map(|node| node.name.as_str()).zip(heard), say)
    }

    /// One round of orders: each goes to all nodes, with one answer a node and order. Whoever waits for it is
    /// not kept by a slow node; in the background every node that answers as a rule is waited for.
    fn round<'a>(&'a self, orders: &'a [Order<'a>], io: Duration, waited_for: bool) -> Vec<Votes> {
        let start = Moment::now();
        let mut votes: Vec<Votes> = orders.iter().map(|_| Votes::new(self.nodes.len())).collect();
        let fan = self.fan(|_| true, orders.len(), start.after(io));
        let mut ask = |i: usize| {
            let request = |order| {
                let (key, verb) = self.verb(order, i);
                Request { names: &key.names, n: self.number(), verb }
            };
            orders.iter().map(request).collect()
        };
        let mut answered = vec![0; self.nodes.len()];
        let mut hear = |i: usize, request: usize, reply: Reply| {
            votes[request].put(i, &orders[request], reply);
            answered[i] += 1;
            if waited_for && votes.iter().all(|votes| votes.count(Verdict::Ours) >= self.majority()) {
                return Some(a_moment_more(start));
            }
            // A node that was silent the last time is not waited for again.
            let waits = (0..self.nodes.len()).any(|i| answered[i] < orders.len() && !self.is_down(i));
            (!waits).then(Moment::now)
        };
        fan_out(&fan, &mut ask, &mut hear);
        votes
    }

    fn verb<'a>(&self, order: &Order<'a>, node: usize) -> (&'a Key, Verb<'a>) {
        match *order {
            // No fence is compared: a node that was late may have minted a higher one for this token.
            Order::Renew { key, token, ttl, .. } => (key, Verb::Renew { token, ttl, fence: None, again: 0 }),
            Order::Release { key, token } => (key, Verb::Release { token }),
            Order::Leave { key, token, fence, not_after } => {
                (key, Verb::Leave { token, fence, not_after: self.not_after(node, not_after) })
            }
        }
    }

    fn judge(&self, order: &Order<'_>, votes: &Votes, io: Duration) -> Performed {
        match order {
            Order::Renew { .. } => self.renewed(order, votes, io),
            Order::Release { token, .. } => self.released(token, votes),
            Order::Leave { .. } => self.left(votes),
        }
    }

    /// A majority kept it: then nodes that lost their memory get it again. Or so many have not that none can.
    fn renewed(&self, order: &Order<'_>, votes: &Votes, io: Duration) -> Performed {
        let &Order::Renew { key, token, ttl, fence } = order else { return votes.unknown(self) };
        let open = self.open(token);
        let gone: Vec<usize> = votes.nodes(Verdict::Gone).collect();
        if votes.count(Verdict::Ours) >= self.majority() {
            if !gone.is_empty() {
                self.note_open(token, gone.iter().fold(0, |bits, &i| bits | 1 << i), io);
                let again = |i: usize| self.nodes[i].pool.health().clock.not_after(Moment::now(), io).unwrap_or(0);
                self.tell(
                    |i| gone.contains(&i),
                    |i| (key, Verb::Renew { token, ttl, fence: Some(fence), again: again(i) }),
                );
            }
            return Performed { verdict: Ok(Verdict::Ours), ghost: false };
        }
        let certain = gone.iter().filter(|&&i| open & 1 << i == 0).count();
        let others = votes.count(Verdict::Others);
        if others + certain > self.nodes.len() - self.majority() {
            self.give_up(key, token);
            let verdict = if others > certain { Verdict::Others } else { Verdict::Gone };
            return Performed { verdict: Ok(verdict), ghost: false };
        }
        votes.unknown(self)
    }

    fn released(&self, token: &str, votes: &Votes) -> Performed {
        let (ours, answered) = (votes.count(Verdict::Ours), votes.answered());
        // What may still be executed on a node is taken back when it cannot be any more.
        let ghost = votes.has_ghost() || self.open(token) != 0;
        if ours >= self.majority() {
            return Performed { verdict: Ok(Verdict::Ours), ghost };
        }
        if answered < self.majority() {
            return votes.unknown(self);
        }
        let verdict =
            if votes.count(Verdict::Others) > votes.count(Verdict::Gone) { Verdict::Others } else { Verdict::Gone };
        // Covered as long as the lease is, whoever deleted the key.
        Performed { verdict: Ok(verdict), ghost: true }
    }

    /// Final where all said so. One that does not answer is asked again until the lease that it is about is over.
    fn left(&self, votes: &Votes) -> Performed {
        if votes.count(Verdict::NotYet) > 0 {
            return Performed { verdict: Ok(Verdict::NotYet), ghost: false };
        }
        if votes.count(Verdict::Final) == self.nodes.len() {
            return Performed { verdict: Ok(Verdict::Final), ghost: false };
        }
        votes.unknown(self)
    }
}

/// A majority has answered what was asked at `start`: the others have a moment more, since those that do not
/// answer must be asked again when all is over.
fn a_moment_more(start: Moment) -> Moment {
    let now = Moment::now();
    now.after((start.until(now) / 8).clamp(Duration::from_micros(200), Duration::from_millis(5)))
}

/// The answer as a verb's, with what may still be executed.
fn judged<T>(reply: Reply, parse: fn(&str) -> Option<T>) -> (Result<T, Failure>, bool) {
    let answer = reply.answer.and_then(|value| {
        without_number(&value)
            .and_then(parse)
            .ok_or_else(|| Failure::with_text(Class::Protocol, "an answer that no script of ours gives"))
    });
    (answer, reply.ghost)
}

impl Nodes for Quorum {
    fn acquire(&self, attempt: &Attempt<'_>) -> Attempted {
        let start = Moment::now();
        let ttl = Duration::from_millis(attempt.ttl);
        let (io, valid) = (attempt.io.min(ttl / 4), valid_until(start, ttl));
        let heard = self.try_all(attempt, start, io);
        let held: Vec<Option<u64>> = heard
            .iter()
            .map(|answer| match answer {
                Some((Ok(Try::Held { fence, .. }), _)) => Some(*fence),
                _ => None,
            })
            .collect();
        let ghosts = heard.iter().enumerate().filter(|(_, answer)| matches!(answer, Some((_, true)) | None));
        let ghosts = ghosts.fold(0, |bits, (i, _)| bits | 1 << i);
        let not_after = NotAfter(start.after(io + 2 * SLACK).to_bits() / 1_000);
        let mut ghost = (ghosts != 0).then_some(not_after);
        if held.iter().flatten().count() >= self.majority()
            && let Some(fence) = self.agree(attempt, &held, valid)
        {
            self.note_open(attempt.token, ghosts, io);
            self.measure(start);
            return Attempted { outcome: Ok(Outcome::Granted { fence, sent: start }), ghost, calls: Vec::new() };
        }
        if ghost.is_some() || held.iter().any(Option::is_some) {
            self.give_up(attempt.key, attempt.token);
            // What was told has no answer here.
            ghost = Some(not_after);
        }
        Attempted { outcome: self.refused(&heard), ghost, calls: Vec::new() }
    }

    fn resume(&self, key: &Key, token: &str, ttl: u64, io: Duration) -> Result<Option<(u64, Moment)>, Failure> {
        let start = Moment::now();
        let valid = valid_until(start, Duration::from_millis(ttl));
        let verb = |i: usize| {
            let not_after = self.nodes[i].pool.health().clock.not_after(Moment::now(), io).unwrap_or(1);
            (key, Verb::Resume { token, ttl, not_after })
        };
        let heard = self.poll(|_| true, start.after(io), verb, Try::parse, |_| None);
        let held: Vec<Option<u64>> = heard
            .iter()
            .map(|answer| match answer {
                Some((Ok(Try::Held { fence, .. }), _)) => Some(*fence),
                _ => None,
            })
            .collect();
        let answered = heard.iter().filter(|answer| matches!(answer, Some((Ok(_), _)))).count();
        let attempt = Attempt { key, token, ttl, hint: 0, io, ask: super::Ask::Try };
        if held.iter().flatten().count() >= self.majority() {
            let fence = self.agree(&attempt, &held, valid);
            return match fence {
                Some(fence) => Ok(Some((fence, start))),
                None => Err(Failure::with_text(Class::Unavailable, "the nodes did not agree on a fence in time")),
            };
        }
        if answered - held.iter().flatten().count() > self.nodes.len() - self.majority() {
            return Ok(None);
        }
        Err(self.failure(&heard, said))
    }

    fn perform(&self, order: &Order<'_>, io: Duration) -> Performed {
        let votes = self.round(std::slice::from_ref(order), io, true);
        self.judge(order, &votes[0], io)
    }

    fn perform_all(&self, orders: &[Order<'_>], io: Duration) -> Vec<Performed> {
        let votes = self.round(orders, io, false);
        orders.iter().zip(&votes).map(|(order, votes)| self.judge(order, votes, io)).collect()
    }

    fn force(&self, key: &Key, io: Duration) -> Result<bool, Failure> {
        let verb = |_| (key, Verb::Force);
        let heard = self.poll(|_| true, Moment::now().after(io), verb, Released::parse, |_| None);
        let answered = heard.iter().filter(|answer| matches!(answer, Some((Ok(_), _)))).count();
        if answered < self.majority() {
            return Err(self.failure(&heard, |_| "freed it"));
        }
        let freed =
            |answer: &Released| matches!(answer, Released::Freed | Released::HandedOver | Released::Unannounced);
        Ok(self.count(&heard, freed).0 > 0)
    }

    fn write(&self, _: Condition<'_>, _: &Writes<'_>, _: Duration) -> Result<Written, Unwritten> {
        let failure = Failure::with_text(
            Class::Setup,
            "several nodes can do nothing in one step: guard what is written by the fence, with a FenceGate",
        );
        Err(Unwritten { failure, ghost: false })
    }

    fn owner(&self, key: &Key, io: Duration) -> Result<Option<Owner>, Failure> {
        let until = Moment::now().after(io);
        let share = |left: usize| Moment::now().until(until) / u32::try_from(left).unwrap_or(1);
        let asked = self.nodes.iter().enumerate();
        let owners: Vec<Heard<Option<Owner>>> =
            asked.map(|(i, node)| Some((node.single.owner(key, share(self.nodes.len() - i)), false))).collect();
        let answered = owners.iter().filter(|owner| matches!(owner, Some((Ok(_), _)))).count();
        if answered < self.majority() {
            return Err(self.failure(&owners, |_| "answered"));
        }
        let mut tokens: HashMap<String, Vec<Option<Duration>>> = HashMap::new();
        for owner in owners.into_iter().flatten().filter_map(|(owner, _)| owner.ok().flatten()) {
            tokens.entry(owner.token).or_default().push(owner.remaining);
        }
        let most = tokens.into_iter().find(|(_, remaining)| remaining.len() >= self.majority());
        // None of them ends later than the longest, which says nothing if it is for ever.
        Ok(most.map(|(token, remaining)| Owner { token, remaining: remaining.into_iter().flatten().min() }))
    }

    fn ping(&self, io: Duration) -> Result<(), Failure> {
        let until = Moment::now().after(io);
        let asked = self.nodes.iter().enumerate();
        let heard: Vec<Heard<()>> = asked
            .map(|(i, node)| {
                let left = u32::try_from(self.nodes.len() - i).unwrap_or(1);
                Some((node.single.ping(Moment::now().until(until) / left), false))
            })
            .collect();
        if self.count(&heard, |()| true).0 >= self.majority() {
            Ok(())
        } else {
            Err(self.failure(&heard, |()| "is good"))
        }
    }

    fn is_down(&self) -> bool {
        (0..self.nodes.len()).filter(|&i| !self.is_down(i)).count() < self.majority()
    }

    fn votes(&self) -> bool {
        true
    }

    fn until(&self, not_after: NotAfter) -> Duration {
        Moment::now().until(Moment::from_bits(not_after.0.saturating_mul(1_000)))
    }
}

fn said(answer: &Try) -> &'static str {
    match answer {
        Try::Held { .. } => "has it for us",
        Try::Taken { .. } => "has it for another",
        Try::Late { .. } => "got it too late",
    }
}

impl Quorum {
    /// Why there is no lock: a majority answered, and it is another's; or too few did.
    fn refused(&self, heard: &[Heard<Try>]) -> Result<Outcome, Failure> {
        let answered = heard.iter().filter(|answer| matches!(answer, Some((Ok(_), _)))).count();
        if answered < self.majority() {
            return Err(self.failure(heard, said));
        }
        let taken = heard.iter().filter_map(|answer| match answer {
            Some((Ok(Try::Taken { pttl, .. }), _)) => Some(remaining(*pttl)),
            _ => None,
        });
        // Whoever is next when votes are split: soon.
        let longest = taken.reduce(|a, b| Some(a?.max(b?))).unwrap_or(Some(Duration::ZERO));
        Ok(Outcome::Taken { remaining: longest, hands_over: HandsOver::No })
    }

    /// A round trip of the majority, for the next hint.
    fn measure(&self, start: Moment) {
        let micros = u64::try_from(start.until(Moment::now()).as_micros()).unwrap_or(0);
        for node in &self.nodes {
            let old = node.round_trip.load(Relaxed);
            node.round_trip.store(if old == 0 { micros } else { (7 * old + micros) / 8 }, Relaxed);
        }
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(|node| &node.name)).finish()
    }
}
