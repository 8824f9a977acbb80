//! One server.

mod stamps;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use log::warn;
use redis::Value;

use super::{
    Ask, Attempt, Attempted, Condition, Go, Heard, Key, Nodes, NotAfter, Order, Outcome, Owner, Performed, Sent,
    Stamped, Stamping, Stands, Unstamp, Unwritten, Verdict, Writes, Written, remaining,
};
use crate::clock::Moment;
use crate::server::script::{Guarded, Left, Released, Renewed, Request, Try, Verb, Wait, without_number};
use crate::server::{self, Class, Failure, Link, Reply, clock_of, server_clock};

/// Older servers lack what the scripts rely on.
const OLDEST: (u32, u32) = (6, 2);

const LATE: &str = "every attempt came late by the server's clock";

/// For the server's clock, which is estimated.
const CLOCK_SLACK: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Single {
    link: Arc<dyn Link>,
    /// The number of the next call.
    numbers: AtomicU64,
    /// PUBLISH was refused: a waiter cannot be told that it has the lock. Until the next subscription.
    mute: AtomicBool,
    /// That was logged.
    said_mute: AtomicBool,
    /// So many must have a grant before it is one.
    replicas: u32,
}

impl Single {
    pub(crate) fn new(link: Arc<dyn Link>) -> Single {
        Single {
            link,
            numbers: AtomicU64::new(1),
            mute: AtomicBool::new(false),
            said_mute: AtomicBool::new(false),
            replicas: 0,
        }
    }

    pub(crate) fn copied_to(self, replicas: u32) -> Single {
        Single { replicas, ..self }
    }

    fn request<'a>(&self, key: &'a Key, verb: Verb<'a>) -> Request<'a> {
        Request { names: &key.names, n: self.number(), verb }
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Takes note of what became of a release.
    fn note(&self, released: Released) {
        if released != Released::Unannounced {
            return;
        }
        self.mute.store(true, Relaxed);
        if !self.said_mute.swap(true, Relaxed) {
            warn!("redis refuses PUBLISH: waiters are not told when they get a lock, and poll (grant &distlock:*)");
        }
    }

    /// One `wait`, whose number a message may name; an answer to another call is asked for once more.
    fn wait(&self, key: &Key, verb: Verb<'_>, until: Moment, calls: &mut Vec<Sent>) -> Reply {
        let mut once = || {
            let request = self.request(key, verb);
            calls.push(Sent { number: request.n, at: Moment::now() });
            self.send(&request, until)
        };
        let reply = once();
        if is_astray(&reply) { once().after(reply) } else { reply }
    }

    /// Runs one script; an answer to another call is asked for once more.
    fn ask(&self, key: &Key, verb: Verb<'_>, until: Moment) -> Reply {
        let once = || self.send(&self.request(key, verb), until);
        let reply = once();
        if is_astray(&reply) { once().after(reply) } else { reply }
    }

    /// Runs one script once. What it grants is none while too few replicas have it.
    fn send(&self, request: &Request<'_>, until: Moment) -> Reply {
        if self.replicas == 0 || !matches!(request.verb, Verb::Try { .. } | Verb::Wait { .. } | Verb::Resume { .. }) {
            return server::ask(&*self.link, request, until);
        }
        // The other half is for connecting, and for the answer.
        let time = Moment::now().until(until) / 2;
        let (mut reply, copies) = server::ask_copied(&*self.link, request, (self.replicas, time), until);
        if reply.answer.as_ref().is_ok_and(is_grant)
            && let Some(failure) = self.uncopied(copies)
        {
            // What is refused for good ends the acquisition, which then takes back what it has.
            reply.ghost |= !failure.is_transient();
            reply.answer = Err(failure);
        }
        reply
    }

    /// Takes back at once what is none, or the next attempt, and everybody else's, would find it taken.
    fn gives_back(&self, key: &Key, token: &str, until: Moment) -> bool {
        let leave = Verb::Leave { token, fence: None, not_after: 0 };
        server::ask(&*self.link, &self.request(key, leave), until).answer.is_ok()
    }

    /// Why what was granted is none.
    fn uncopied(&self, copies: Result<u64, Failure>) -> Option<Failure> {
        match copies {
            Ok(copies) if copies >= self.replicas.into() => None,
            Ok(copies) => {
                let text = format!("{copies} of {} replicas have it", self.replicas);
                Some(Failure::with_text(Class::Uncopied, &text))
            }
            Err(failure) if failure.is_transient() => Some(Failure { class: Class::Uncopied, ..failure }),
            Err(failure) => Some(failure),
        }
    }

    /// The server's clock, asked for where no answer has told it yet.
    fn not_after(&self, now: Moment, io: Duration) -> Result<u64, Failure> {
        let clock = &self.link.health().clock;
        if let Some(not_after) = clock.not_after(now, io) {
            return Ok(not_after);
        }
        let reply = server::plain(&*self.link, &["TIME"], now.after(io))?;
        let received = Moment::now();
        clock.set(clock_of(&reply).ok_or_else(|| nonsense(&reply))?, received);
        clock.not_after(received, io).ok_or_else(|| nonsense(&reply))
    }

    /// One call that is sent at `sent`, or later.
    fn attempt(
        &self,
        attempt: &Attempt<'_>,
        not_after: u64,
        sent: Moment,
        until: Moment,
        calls: &mut Vec<Sent>,
    ) -> (Result<Step, Failure>, bool) {
        let Attempt { key, token, ttl, hint, ask, .. } = *attempt;
        let (mut reply, parse): (_, Parse) = match ask {
            Ask::Try => (self.ask(key, Verb::Try { token, ttl, hint, not_after }, until), tried),
            Ask::Wait { place, beat, channel } => {
                let verb = Verb::Wait { token, ttl, hint, not_after, place, beat, channel };
                (self.wait(key, verb, until, calls), waited)
            }
        };
        let number = calls.last().map_or(0, |sent| sent.number);
        let (at, answered) = (reply.at, reply.answer.is_ok());
        if matches!(&reply.answer, Err(failure) if failure.class == Class::Uncopied) {
            reply.ghost |= !self.gives_back(key, token, until);
        }
        let step = read(reply.answer, |text| parse(text, number, sent)).map(|(step, clock)| {
            self.link.health().clock.set(clock, at);
            step
        });
        // An answer that makes no sense may be that of an attempt which took the lock.
        let ghost = reply.ghost || (answered && step.is_err());
        (step, ghost)
    }

    fn judge(&self, order: &Order<'_>, reply: Reply) -> Performed {
        let verdict = match order {
            Order::Renew { .. } => read(reply.answer, Renewed::parse).map(Verdict::from),
            Order::Release { .. } => read(reply.answer, Released::parse).map(|released| {
                self.note(released);
                Verdict::from(released)
            }),
            Order::Leave { .. } => read(reply.answer, Left::parse).map(Verdict::from),
        };
        Performed { verdict, ghost: reply.ghost }
    }

    fn version(&self, told: &str, until: Moment) -> Result<(), Failure> {
        let asked;
        let version = if told == "?" {
            let info = server::plain(&*self.link, &["INFO", "server"], until);
            // Who may lock need not have the right to ask this.
            asked = info.ok().and_then(|v| redis::from_redis_value::<String>(v).ok()).unwrap_or_default();
            asked.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or_default()
        } else {
            told
        };
        let mut parts = version.split('.').map_while(|part| part.parse().ok());
        match (parts.next(), parts.next()) {
            (Some(major), Some(minor)) if (major, minor) < OLDEST => {
                Err(Failure::with_text(Class::Setup, &format!("it is Redis {version}")).advising(server::OLD))
            }
            _ => Ok(()),
        }
    }

    /// One node of a cluster of several has some of the keys, and the probe's may be among them.
    fn has_all_keys(&self, until: Moment) -> Result<(), Failure> {
        if !self.link.is_one_address() {
            return Ok(());
        }
        let info = server::plain(&*self.link, &["CLUSTER", "INFO"], until);
        // No cluster, as a rule; or no right to ask.
        let info = info.ok().and_then(|v| redis::from_redis_value::<String>(v).ok()).unwrap_or_default();
        let nodes = info.lines().find_map(|line| line.strip_prefix("cluster_size:")?.parse().ok());
        match nodes {
            Some(2u32..) => {
                Err(Failure::with_text(Class::Setup, "the cluster has other nodes").advising(server::CLUSTER))
            }
            _ => Ok(()),
        }
    }
}

enum Step {
    End(Outcome),
    /// The server's clock, as of the refusal.
    Late(u64),
}

/// Reads an answer to the call of a number that was sent then, with the server's clock.
type Parse = fn(&str, u64, Moment) -> Option<(Step, u64)>;

/// What `try` answered, with the server's clock.
fn tried(text: &str, _: u64, sent: Moment) -> Option<(Step, u64)> {
    Some(match Try::parse(text)? {
        Try::Held { fence, clock } => (Step::End(Outcome::Granted { fence, sent }), clock),
        Try::Taken { pttl, hands_over, clock } => {
            (Step::End(Outcome::Taken { remaining: remaining(pttl), hands_over }), clock)
        }
        Try::Late { clock } => (Step::Late(clock), clock),
    })
}

/// What `wait` answered.
fn waited(text: &str, number: u64, sent: Moment) -> Option<(Step, u64)> {
    Some(match Wait::parse(text)? {
        Wait::Held { fence, clock } => (Step::End(Outcome::Granted { fence, sent }), clock),
        Wait::Queued(queued) => (Step::End(Outcome::Queued(number, queued)), queued.clock),
        Wait::Late { clock } => (Step::Late(clock), clock),
    })
}

impl Nodes for Single {
    fn acquire(&self, attempt: &Attempt<'_>) -> Attempted {
        let mut sent = Moment::now();
        let until = sent.after(attempt.io);
        let mut not_after = match self.not_after(sent, attempt.io) {
            Ok(not_after) => not_after,
            Err(failure) => return Attempted { outcome: Err(failure), ghost: None, calls: Vec::new() },
        };
        let (mut ghost, mut calls) = (None, Vec::new());
        for late_before in [false, true, true] {
            let (step, lost) = self.attempt(attempt, not_after, sent, until, &mut calls);
            ghost = ghost.max(lost.then_some(NotAfter(not_after)));
            let clock = match step {
                Ok(Step::End(outcome)) => return Attempted { outcome: Ok(outcome), ghost, calls },
                Err(failure) => return Attempted { outcome: Err(failure), ghost, calls },
                Ok(Step::Late(clock)) => clock,
            };
            sent = Moment::now();
            match self.not_after(sent, attempt.io) {
                Err(failure) => return Attempted { outcome: Err(failure), ghost, calls },
                // Once: our idea of its clock was old, and is new now. Twice: it does not help.
                Ok(_) if late_before => not_after = server_clock::generous(clock, attempt.io),
                Ok(fresh) => not_after = fresh,
            }
        }
        Attempted { outcome: Err(Failure::with_text(Class::Unavailable, LATE)), ghost, calls }
    }

    fn resume(&self, key: &Key, token: &str, ttl: u64, io: Duration) -> Result<Option<(u64, Moment)>, Failure> {
        let mut not_after = self.not_after(Moment::now(), io)?;
        for _ in 0..3 {
            let sent = Moment::now();
            let reply = self.ask(key, Verb::Resume { token, ttl, not_after }, sent.after(io));
            if reply.ghost {
                // A copy that is executed after this one would take the hold from the guard of this one.
                thread::sleep(self.until(NotAfter(not_after)).min(2 * io + CLOCK_SLACK) + CLOCK_SLACK);
            }
            match read(reply.answer, Try::parse)? {
                Try::Held { fence, .. } if !reply.ghost => return Ok(Some((fence, sent))),
                Try::Held { .. } => not_after = self.not_after(Moment::now(), io)?,
                // Not gone, but late by a clock that was not known well.
                Try::Late { clock } if clock > not_after => not_after = server_clock::generous(clock, io),
                Try::Taken { .. } | Try::Late { .. } => return Ok(None),
            }
        }
        Err(Failure::with_text(Class::Unavailable, LATE))
    }

    fn perform(&self, order: &Order<'_>, io: Duration) -> Performed {
        let (key, verb) = verb_of(order);
        self.judge(order, self.ask(key, verb, Moment::now().after(io)))
    }

    fn perform_all(&self, orders: &[Order<'_>], io: Duration) -> Vec<Performed> {
        let requests: Vec<_> = orders
            .iter()
            .map(|order| {
                let (key, verb) = verb_of(order);
                self.request(key, verb)
            })
            .collect();
        let replies = server::ask_all(&*self.link, &requests, Moment::now().after(io));
        orders.iter().zip(replies).map(|(order, reply)| self.judge(order, reply)).collect()
    }

    fn force(&self, key: &Key, io: Duration) -> Result<bool, Failure> {
        let reply = self.ask(key, Verb::Force, Moment::now().after(io));
        Ok(matches!(read(reply.answer, Released::parse)?, Released::Freed | Released::HandedOver))
    }

    fn write(&self, condition: Condition<'_>, writes: &Writes<'_>, io: Duration) -> Result<Written, Unwritten> {
        let write = Guarded::new(condition, writes);
        let n = self.numbers.fetch_add(1, Relaxed);
        let Reply { answer, ghost, .. } = server::write(&*self.link, &write, n, Moment::now().after(io));
        let answer = answer.map_err(|failure| Unwritten { failure, ghost })?;
        write.read(answer).map_err(|other| Unwritten { failure: nonsense(&other), ghost: true })
    }

    fn owner(&self, key: &Key, io: Duration) -> Result<Option<Owner>, Failure> {
        let until = Moment::now().after(io);
        let value = match server::plain(&*self.link, &["GET", &key.text], until)? {
            Value::Nil => return Ok(None),
            Value::BulkString(bytes) => bytes,
            other => return Err(nonsense(&other)),
        };
        let pttl = match server::plain(&*self.link, &["PTTL", &key.text], until)? {
            Value::Int(-2) => return Ok(None),
            Value::Int(pttl) => pttl,
            other => return Err(nonsense(&other)),
        };
        let token = String::from_utf8_lossy(&value).into_owned();
        Ok(Some(Owner { token, remaining: remaining(pttl) }))
    }

    fn ping(&self, io: Duration) -> Result<(), Failure> {
        let until = Moment::now().after(io);
        // A key of its own, so that the probe cannot meet a lock.
        let key = Key::new(&format!("distlock:probe:{}", uuid::Uuid::new_v4().simple()));
        let reply = self.ask(&key, Verb::Probe, until);
        let version = read(reply.answer, |text| Some(text.to_owned()))?;
        self.version(&version, until)?;
        if self.replicas > 0 {
            // May it be asked? That waits for none.
            server::plain(&*self.link, &["WAIT", "0", "1"], until)?;
        }
        self.has_all_keys(until)
    }

    fn asks_replicas(&self) -> bool {
        self.replicas > 0
    }

    fn can_listen(&self) -> bool {
        self.link.can_listen()
    }

    fn listen(&self, channel: &str, io: Duration, hear: &mut dyn FnMut(Heard<'_>) -> Go) -> Result<(), Failure> {
        self.link.listen(channel, io, &mut |heard| {
            if matches!(heard, Heard::Subscribed) {
                // Rights may have changed with whatever broke the last one: tried once more.
                self.mute.store(false, Relaxed);
            }
            hear(heard)
        })
    }

    fn can_announce(&self) -> bool {
        !self.mute.load(Relaxed)
    }

    fn is_down(&self) -> bool {
        self.link.health().is_down()
    }

    fn stamp(&self, key: &Key, how: &Stamping, io: Duration) -> Result<Result<Stamped, Stands>, Failure> {
        self.write_stamp(key, how, io)
    }

    fn unstamp(&self, key: &Key, how: &Stamping, stamp: u64, io: Duration) -> Result<Unstamp, Failure> {
        self.delete_stamp(key, how, stamp, io)
    }

    fn until(&self, not_after: NotAfter) -> Duration {
        self.link.health().clock.until(not_after.0)
    }
}

fn verb_of<'a>(order: &Order<'a>) -> (&'a Key, Verb<'a>) {
    match *order {
        Order::Renew { key, token, ttl, fence } => (key, Verb::Renew { token, ttl, fence: Some(fence), again: 0 }),
        Order::Release { key, token } => (key, Verb::Release { token }),
        Order::Leave { key, token, fence, not_after } => (key, Verb::Leave { token, fence, not_after: not_after.0 }),
    }
}

/// An answer of a script, or a failure where it is none of that verb's.
fn read<T>(answer: Result<Value, Failure>, parse: impl Fn(&str) -> Option<T>) -> Result<T, Failure> {
    let value = answer?;
    without_number(&value).and_then(parse).ok_or_else(|| nonsense(&value))
}

fn nonsense(value: &Value) -> Failure {
    Failure::with_text(Class::Protocol, &format!("an answer that no script of ours gives: {value:?}"))
}

/// The script gave the lock to whoever asked.
fn is_grant(answer: &Value) -> bool {
    without_number(answer).is_some_and(|text| text.starts_with("held "))
}

fn is_astray(reply: &Reply) -> bool {
    matches!(&reply.answer, Err(failure) if failure.class == Class::Astray)
}

#[cfg(test)]
mod tests;
