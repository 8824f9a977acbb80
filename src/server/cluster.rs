//! A cluster: one pool a node, and which node serves which slot. All keys of one lock lie in one slot.
//!
//! What a node says of a slot that is elsewhere (MOVED, ASK) is followed at once, within the deadline of
//! the call. What is over only later (TRYAGAIN, CLUSTERDOWN) is an answer like LOADING: whoever waits
//! tries again. A node that does not answer has the slots asked for anew, at the next call.
//!
//! There is no subscription: a node does not see who listens at another, and waiters look by themselves.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use redis::Value;

use super::failure::{Cause, Class, Failure};
use super::handshake::Address;
use super::health::Health;
use super::link::{Link, Reply};
use super::pool::Pool;
use super::script::{Command, pack, slot_of};
use crate::clock::Moment;

/// Host and port.
type Place = (String, u16);

pub(crate) struct Cluster {
    seeds: Vec<Place>,
    /// How to log in at every node.
    login: Address,
    max_connections: u32,
    health: Health,
    /// The slots have to be asked for before the next call.
    stale: AtomicBool,
    /// Held by the one call that asks for them, up to its deadline; the others wait for what it finds.
    asking: Mutex<()>,
    /// Guards what is known of the nodes; no I/O under it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pools: HashMap<Place, Arc<Pool>>,
    /// First and last slot, and who serves them.
    ranges: Vec<(u16, u16, Place)>,
    /// What nodes said of single slots since.
    moved: HashMap<u16, Place>,
}

/// So often a call is sent on, before its caller has to try again.
const HOPS: usize = 5;

/// In a batch, a node that did not answer the last time has this part of the time.
const BRIEFLY: u32 = 8;

/// Where a node sends us.
enum Redirect {
    Moved(u16, Place),
    Ask(Place),
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<Place>, login: Address, max_connections: u32) -> Cluster {
        let stale = AtomicBool::new(true);
        Cluster {
            seeds,
            login,
            max_connections,
            health: Health::default(),
            stale,
            asking: Mutex::default(),
            state: Mutex::default(),
        }
    }

    fn pool(&self, place: &Place) -> Arc<Pool> {
        let mut state = self.state.lock();
        let made = || Pool::new(self.login.at(place), self.max_connections);
        Arc::clone(state.pools.entry(place.clone()).or_insert_with(made))
    }

    /// Who serves the slot of this command; one without a key may go anywhere.
    fn place(&self, command: &Command, until: Moment) -> Result<Place, Failure> {
        if self.stale.load(Relaxed) {
            self.refresh(until)?;
        }
        let state = self.state.lock();
        let served = |slot: u16| {
            let range = || state.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
            state.moved.get(&slot).or_else(|| range().map(|(.., place)| place))
        };
        let found = match key_of(command) {
            Some(key) => served(slot_of(&key)),
            None => state.ranges.first().map(|(.., place)| place),
        };
        found.cloned().ok_or_else(|| {
            self.stale.store(true, Relaxed);
            Failure::with_text(Class::Unavailable, "no node of the cluster serves the slot of the key")
        })
    }

    fn refresh(&self, until: Moment) -> Result<(), Failure> {
        let limit = Moment::now().until(until);
        let Some(_asking) = self.asking.try_lock_for(limit) else { return Err(Failure::timeout(limit)) };
        if !self.stale.swap(false, Relaxed) {
            return Ok(());
        }
        let outcome = self.ask_for_slots(until);
        if outcome.is_err() {
            self.stale.store(true, Relaxed);
        }
        outcome
    }

    /// From the first node that answers. One that is silent costs its share of the time, of which one is
    /// left for the call itself.
    fn ask_for_slots(&self, until: Moment) -> Result<(), Failure> {
        let mut places: Vec<Place> = self.state.lock().ranges.iter().map(|(.., place)| place.clone()).collect();
        places.extend(self.seeds.iter().cloned());
        places.sort();
        places.dedup();
        places.sort_by_key(|place| self.pool(place).health().is_down());
        let mut failure = Failure::with_text(Class::Setup, "no node of the cluster is known");
        for (i, place) in places.iter().enumerate() {
            let shares = u32::try_from(places.len() - i + 1).unwrap_or(u32::MAX);
            let now = Moment::now();
            let share = (now.until(until) / shares).max(Duration::from_millis(1));
            let reply = self.pool(place).call(&Command::plain(&["CLUSTER", "SLOTS"]), now.after(share));
            match reply.answer.and_then(|answer| slots(&answer, place)) {
                Ok(ranges) => {
                    self.learn(ranges);
                    return Ok(());
                }
                Err(other) => failure = other,
            }
        }
        Err(failure)
    }

    fn learn(&self, ranges: Vec<(u16, u16, Place)>) {
        let mut state = self.state.lock();
        state.moved.clear();
        state.ranges = ranges;
        // Nodes that serve nothing have no connections any more.
        let State { pools, ranges, .. } = &mut *state;
        let serves = |place: &Place| ranges.iter().any(|(.., served)| served == place);
        let gone: Vec<_> = pools.extract_if(|place, _| !serves(place)).collect();
        drop(state);
        drop(gone);
    }

    /// Sends commands to the node that serves the slot of the first, and on to where that says.
    fn follow(&self, first: &Command, until: Moment, send: impl Fn(&Pool, bool) -> Vec<Reply>) -> Vec<Reply> {
        let mut place = match self.place(first, until) {
            Ok(place) => place,
            Err(failure) => return self.note(vec![unsent(failure)]),
        };
        let mut asking = false;
        let mut before: Vec<Reply> = Vec::new();
        for _ in 0..HOPS {
            let mut replies = send(&self.pool(&place), asking);
            replies.iter_mut().zip(&before).for_each(|(reply, before)| reply.ghost |= before.ghost);
            match replies.first().and_then(redirect) {
                Some(Redirect::Moved(slot, to)) => {
                    self.state.lock().moved.insert(slot, to.clone());
                    self.stale.store(true, Relaxed);
                    (place, asking) = (to, false);
                }
                Some(Redirect::Ask(to)) => (place, asking) = (to, true),
                None => return self.note(replies),
            }
            if Moment::now() >= until {
                break;
            }
            before = replies;
        }
        self.note(vec![unsent(Failure::with_text(Class::Unavailable, "the slot of the key is on its way"))])
    }

    /// Takes note of what was heard; a node that is silent, or no master, may have a successor.
    fn note(&self, replies: Vec<Reply>) -> Vec<Reply> {
        for reply in &replies {
            self.health.note(&reply.answer, reply.at);
            if matches!(&reply.answer, Err(failure) if matches!(failure.class, Class::Unreachable | Class::Role)) {
                self.stale.store(true, Relaxed);
            }
        }
        replies
    }

    /// One command, on the way that `send` takes where it need not be announced by ASKING.
    fn one(&self, command: &Command, until: Moment, send: impl Fn(&Pool) -> Reply) -> Reply {
        let mut replies = self.follow(command, until, |pool, asking| {
            if asking { announced(pool, std::slice::from_ref(command), until) } else { vec![send(pool)] }
        });
        replies.swap_remove(0)
    }
}

/// ASKING holds for the next command alone.
fn announced(pool: &Pool, commands: &[Command], until: Moment) -> Vec<Reply> {
    let mut all = vec![Command::plain(&["ASKING"])];
    all.extend_from_slice(commands);
    let mut replies = pool.call_together(&all, until);
    replies.remove(0);
    replies
}

impl Link for Cluster {
    fn call(&self, command: &Command, until: Moment) -> Reply {
        self.one(command, until, |pool| pool.call(command, until))
    }

    fn call_once(&self, command: &Command, until: Moment) -> Reply {
        self.one(command, until, |pool| pool.call_once(command, until))
    }

    fn call_together(&self, commands: &[Command], until: Moment) -> Vec<Reply> {
        let Some(first) = commands.first() else { return Vec::new() };
        let mut replies = self.follow(first, until, |pool, asking| {
            if asking { announced(pool, commands, until) } else { pool.call_together(commands, until) }
        });
        let missing = commands.len() - replies.len();
        replies.extend((0..missing).map(|_| unsent(Failure::new(Class::Unavailable))));
        replies
    }

    /// A batch for each node, side by side: a silent one has no part in the others' renewals.
    fn call_all(&self, commands: &[Command], until: Moment) -> Vec<Reply> {
        let mut batches: HashMap<Place, Vec<usize>> = HashMap::new();
        let mut replies: Vec<Option<Reply>> = commands.iter().map(|_| None).collect();
        for (i, command) in commands.iter().enumerate() {
            match self.place(command, until) {
                Ok(place) => batches.entry(place).or_default().push(i),
                Err(failure) => replies[i] = Some(unsent(failure)),
            }
        }
        let batch = |place: &Place, which: &[usize]| {
            let part: Vec<_> = which.iter().map(|&i| commands[i].clone()).collect();
            let pool = self.pool(place);
            // Its renewals are tried often, and must not make those of others late.
            let now = Moment::now();
            let until = if pool.health().is_down() { now.after(now.until(until) / BRIEFLY) } else { until };
            pool.call_all(&part, until)
        };
        let answered: Vec<(Vec<usize>, Vec<Reply>)> = std::thread::scope(|scope| {
            let batch = &batch;
            let mut batches = batches.into_iter();
            let own = batches.next();
            let others: Vec<_> = batches
                .map(|(place, which)| {
                    let (there, these) = (place.clone(), which.clone());
                    let thread = std::thread::Builder::new().name("distlock-batch".to_owned());
                    let thread = thread.spawn_scoped(scope, move || batch(&there, &these));
                    (place, which, thread)
                })
                .collect();
            let own = own.map(|(place, which)| (batch(&place, &which), which)).map(|(replies, which)| (which, replies));
            let join =
                |(place, which, thread): (Place, Vec<usize>, std::io::Result<std::thread::ScopedJoinHandle<'_, _>>)| {
                    // Without a thread of its own it has its turn now.
                    let replies =
                        thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(|| batch(&place, &which));
                    (which, replies)
                };
            own.into_iter().chain(others.into_iter().map(join)).collect()
        });
        for (which, part) in answered {
            for (i, reply) in which.into_iter().zip(part) {
                // What is elsewhere is few, and goes there one by one.
                let sent_on = redirect(&reply).is_some();
                replies[i] = Some(if sent_on { self.call(&commands[i], until).after(reply) } else { reply });
            }
        }
        let lost = || unsent(Failure::new(Class::Protocol));
        self.note(replies.into_iter().map(|reply| reply.unwrap_or_else(lost)).collect())
    }

    fn health(&self) -> &Health {
        &self.health
    }
}

fn unsent(failure: Failure) -> Reply {
    Reply { answer: Err(failure), ghost: false, at: Moment::now() }
}

/// The first key of a script, or of a command that reads one.
fn key_of(command: &Command) -> Option<String> {
    let mut commands = pack::unpack(&command.bytes)?;
    let parts = commands.pop()?;
    let key = match *parts.first()? {
        b"EVALSHA" | b"EVAL" if *parts.get(2)? != b"0" => *parts.get(3)?,
        b"GET" | b"PTTL" => *parts.get(1)?,
        _ => return None,
    };
    Some(String::from_utf8_lossy(key).into_owned())
}

fn redirect(reply: &Reply) -> Option<Redirect> {
    let Err(Failure { cause: Some(Cause::Redis(e)), .. }) = &reply.answer else { return None };
    let (address, slot) = e.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let place = (host.to_owned(), port.parse().ok()?);
    Some(if e.code() == Some("ASK") { Redirect::Ask(place) } else { Redirect::Moved(slot, place) })
}

/// What `CLUSTER SLOTS` answers; a node that does not know its own host is where it was asked.
fn slots(answer: &Value, asked: &Place) -> Result<Vec<(u16, u16, Place)>, Failure> {
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let number = |i: usize| redis::from_redis_value_ref::<u16>(parts.get(i)?).ok();
        let Some(Value::Array(master)) = parts.get(2) else { return None };
        let host = master.first().and_then(pack::text_of).filter(|host| !host.is_empty() && *host != "?");
        let port = redis::from_redis_value_ref::<u16>(master.get(1)?).ok()?;
        Some((number(0)?, number(1)?, (host.unwrap_or(&asked.0).to_owned(), port)))
    };
    let Value::Array(ranges) = answer else { return Err(no_slots()) };
    ranges.iter().map(range).collect::<Option<Vec<_>>>().ok_or_else(no_slots)
}

fn no_slots() -> Failure {
    Failure::with_text(Class::Protocol, "what it says of its slots is no answer of a cluster")
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}
