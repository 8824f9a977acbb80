//! One thread and several servers: what each is asked goes out to all of them, and answers are taken as
//! they come.
//!
//! Whoever asks says how long the rest is to be waited for. An answer that is not waited for any more is
//! owed: it comes before that of the next command on its connection, and is passed over there. So commands
//! to one server stay in their order, and a slow server is as good as it is, and no slower for the others.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::BorrowedFd,
    sync::Arc,
    time::Duration,
};

use r2d2::PooledConnection;
use redis::Value;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::failure::{Class, Failure};
use super::link::{Link, Reply};
use super::opening::Opening;
use super::pool::{Pool, Slots};
use super::script::{Command, How, Request};
use super::slot::{Live, judge};
use crate::clock::Moment;

/// A connection that owes more answers than this is given up.
const MOST_OWED: usize = 128;

/// What several servers are asked.
pub(crate) struct Fan<'a> {
    /// In the order in which they are asked.
    pub(crate) servers: Vec<(usize, &'a Arc<Pool>)>,
    /// How many requests each gets.
    pub(crate) width: usize,
    /// How long sending may take, and opening what is to be sent on.
    pub(crate) until: Moment,
    /// How long answers are waited for, at the most.
    pub(crate) patience: Moment,
}

/// One server.
struct Line<'a> {
    server: usize,
    pool: &'a Pool,
    slot: PooledConnection<Slots>,
    stage: Stage,
    requests: Vec<Request<'a>>,
    /// Requests without an answer yet, in the order in which the answers come.
    awaited: VecDeque<(usize, Command)>,
    /// The connection had waited, so that it may turn out to be broken.
    reused: bool,
    /// A copy of the requests may be executed that has no answer here.
    ghost: bool,
}

enum Stage {
    Opening(Opening),
    Asked(Live),
    Done,
}

/// Asks all servers. `ask` says what, of one whose connection and clock are ready; `hear` takes each reply
/// (the server, the request, what came of it) and says until when the rest is waited for, if not for as
/// long as before. In the end each request of each server had one reply.
pub(crate) fn fan_out<'a>(
    fan: &Fan<'a>,
    ask: &mut dyn FnMut(usize) -> Vec<Request<'a>>,
    hear: &mut dyn FnMut(usize, usize, Reply) -> Option<Moment>,
) {
    let (mut until, limit) = (fan.patience, Moment::now().until(fan.until));
    let mut hear = |server, request, reply: Reply, pool: &Pool, until: &mut Moment| {
        pool.health().note(&reply.answer, reply.at);
        if let Some(earlier) = hear(server, request, reply) {
            *until = earlier.min(*until);
        }
    };
    let mut lines = Vec::new();
    let mut slots = check_out(fan);
    for &(server, pool) in &fan.servers {
        let slot = slots.remove(&server).unwrap_or_else(|| Err(Failure::new(Class::Exhausted)));
        let begun =
            slot.map_err(|failure| (failure, false)).and_then(|slot| Line::begin(server, pool, slot, fan.until, ask));
        match begun {
            Ok(line) => lines.push(line),
            Err((failure, ghost)) => (0..fan.width).for_each(|i| {
                let reply = Reply { answer: Err(failure.clone()), ghost, at: Moment::now() };
                hear(server, i, reply, pool, &mut until);
            }),
        }
    }
    loop {
        lines.retain(|line| !matches!(line.stage, Stage::Done));
        let now = Moment::now();
        if lines.is_empty() || now >= until {
            break;
        }
        for (line, ready) in wait_for_any(&mut lines, now.until(until)) {
            if ready {
                let width = fan.width;
                line.go_on(fan.until, ask, &mut |line, i, reply| hear(line.0, i, reply, line.1, &mut until), width);
            }
        }
    }
    for line in lines {
        line.leave(fan, limit, &mut |server, pool, i, reply| hear(server, i, reply, pool, &mut until));
    }
}

/// A place in each pool; all who ask take theirs in the same order, so that nobody waits for another in a circle.
fn check_out(fan: &Fan<'_>) -> HashMap<usize, Result<PooledConnection<Slots>, Failure>> {
    let mut servers = fan.servers.clone();
    servers.sort_unstable_by_key(|&(server, _)| server);
    servers.into_iter().map(|(server, pool)| (server, pool.check_out(fan.until))).collect()
}

/// Waits until something has come for one of them, and says for which.
fn wait_for_any<'l, 'a>(lines: &'l mut [Line<'a>], time: Duration) -> Vec<(&'l mut Line<'a>, bool)> {
    let ready: Vec<bool> = {
        let mut polled: Vec<PollFd<'_>> = lines.iter().filter_map(Line::poll).collect();
        // A suspended machine does not count this time, so it is not long.
        let time = time.min(crate::sync::LONGEST_SLEEP);
        let time = Timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos().into() };
        // Interrupted: looked at again.
        let _ = rustix::event::poll(&mut polled, Some(&time));
        polled.iter().map(|fd| !fd.revents().is_empty()).collect()
    };
    lines.iter_mut().zip(ready).collect()
}

type Hear<'h> = dyn FnMut((usize, &Pool), usize, Reply) + 'h;

impl<'a> Line<'a> {
    fn begin(
        server: usize,
        pool: &'a Arc<Pool>,
        mut slot: PooledConnection<Slots>,
        until: Moment,
        ask: &mut dyn FnMut(usize) -> Vec<Request<'a>>,
    ) -> Result<Line<'a>, (Failure, bool)> {
        let (live, opening) = (slot.take_live(pool.health().generation()), slot.opening.take());
        let (requests, awaited) = (Vec::new(), VecDeque::new());
        let mut line = Line { server, pool, slot, stage: Stage::Done, requests, awaited, reused: false, ghost: false };
        match live.filter(|live| live.owed <= MOST_OWED) {
            Some(live) if pool.health().clock.at(Moment::now()).is_some() => {
                line.reused = true;
                if line.send(live, until, ask).is_err() {
                    // It had been closed, and a part may have arrived all the same.
                    line.ghost = true;
                    line.stage = Stage::Opening(line.open(until).map_err(|failure| (failure, true))?);
                }
            }
            // It is asked for the time first, where no answer is in between.
            Some(live) if live.owed == 0 => {
                let asked = Opening::ask_time(pool.address(), live.wire, until);
                line.stage = Stage::Opening(asked.or_else(|_| line.open(until)).map_err(|failure| (failure, false))?);
            }
            _ => {
                let goes_on = opening.filter(|opening| !opening.is_over(Moment::now()));
                let opening = goes_on.map_or_else(|| line.open(until), Ok).map_err(|failure| (failure, false))?;
                line.stage = Stage::Opening(opening);
            }
        }
        Ok(line)
    }

    fn open(&self, until: Moment) -> Result<Opening, Failure> {
        self.pool.sweep_later();
        Opening::begin(self.pool.address(), until.max(Moment::now().after(OPENING)))
    }

    fn poll(&self) -> Option<PollFd<'_>> {
        let (fd, flags): (BorrowedFd<'_>, _) = match &self.stage {
            Stage::Opening(opening) if opening.wants_to_write() => (opening.fd()?, PollFlags::OUT),
            Stage::Opening(opening) => (opening.fd()?, PollFlags::IN),
            Stage::Asked(live) => (live.wire.fd()?, PollFlags::IN),
            Stage::Done => return None,
        };
        Some(PollFd::from_borrowed_fd(fd, flags))
    }

    /// The connection is ready: what is to be asked goes out.
    fn send(
        &mut self,
        mut live: Live,
        until: Moment,
        ask: &mut dyn FnMut(usize) -> Vec<Request<'a>>,
    ) -> Result<(), Failure> {
        if self.requests.is_empty() {
            self.requests = ask(self.server);
        }
        let commands = self.requests.iter().map(|request| request.pack(How::Hash));
        self.awaited = commands.enumerate().collect();
        let bytes: Vec<u8> = self.awaited.iter().flat_map(|(_, command)| &command.bytes).copied().collect();
        let now = Moment::now();
        let sent = live.wire.send(&bytes, now, until);
        self.stage = Stage::Asked(live);
        sent.map_err(|e| Failure::from_redis(e, now.until(until)))
    }

    /// Something has come.
    fn go_on(
        &mut self,
        until: Moment,
        ask: &mut dyn FnMut(usize) -> Vec<Request<'a>>,
        hear: &mut Hear<'_>,
        width: usize,
    ) {
        let outcome = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Opening(opening) => match opening.go_on(self.pool.address()) {
                Ok(Ok(ready)) => {
                    let health = self.pool.health();
                    health.clock.set(ready.clock, Moment::now());
                    self.send(Live::new(ready.wire, health.generation()), until, ask)
                }
                Ok(Err(opening)) => {
                    self.stage = Stage::Opening(opening);
                    Ok(())
                }
                Err(failure) => Err(failure),
            },
            Stage::Asked(live) => self.take(live, until, hear),
            Stage::Done => Ok(()),
        };
        let Err(failure) = outcome else { return };
        self.stage = Stage::Done;
        // A connection that had waited was closed meanwhile: once more on a fresh one.
        let is_stale = std::mem::take(&mut self.reused) && failure.is_disconnect();
        if is_stale && self.awaited.len() == width {
            self.ghost = true;
            match self.open(until) {
                Ok(opening) => {
                    self.stage = Stage::Opening(opening);
                    return;
                }
                Err(failure) => return self.fail(&failure, hear, width),
            }
        }
        self.fail(&failure, hear, width);
    }

    /// Takes the answers that have come.
    fn take(&mut self, mut live: Live, until: Moment, hear: &mut Hear<'_>) -> Result<(), Failure> {
        let limit = Moment::now().until(until);
        live.wire.take_in().map_err(|e| Failure::from_redis(e.into(), limit))?;
        while let Some(value) = live.wire.next_whole().map_err(|e| Failure::from_redis(e, limit))? {
            // An answer that is ours by its number ends all waiting for earlier ones, which may be lost.
            if self.awaited.front().is_some_and(|(_, command)| is_of(command, &value)) {
                live.owed = 0;
            }
            if live.owed > 0 {
                live.owed -= 1;
                continue;
            }
            let Some((i, command)) = self.awaited.pop_front() else {
                return Err(Failure::new(Class::Astray));
            };
            self.reused = false;
            let answer = judge(Ok(value), &command, limit);
            if matches!(&answer, Err(failure) if failure.class == Class::NoScript) {
                let command = self.requests[i].pack(How::Source);
                let sent = live.wire.send(&command.bytes, Moment::now(), until);
                self.awaited.push_back((i, command));
                sent.map_err(|e| Failure::from_redis(e, limit))?;
                continue;
            }
            let broken = matches!(&answer, Err(failure) if matches!(failure.class, Class::Astray | Class::Role));
            let reply = Reply { answer, ghost: self.ghost, at: Moment::now() };
            hear((self.server, self.pool), i, reply);
            if broken {
                // Nothing after it is believed: the same failure for the rest.
                return Err(Failure::new(Class::Astray));
            }
        }
        if self.awaited.is_empty() {
            self.slot.put_back(live, Moment::now());
        } else {
            self.stage = Stage::Asked(live);
        }
        Ok(())
    }

    /// The same failure for all that have no answer.
    fn fail(&mut self, failure: &Failure, hear: &mut Hear<'_>, width: usize) {
        let sent = !self.requests.is_empty();
        let left: Vec<usize> =
            if sent { self.awaited.drain(..).map(|(i, _)| i).collect() } else { (0..width).collect() };
        let ghost = self.ghost || sent;
        for i in left {
            let reply = Reply { answer: Err(failure.clone()), ghost, at: Moment::now() };
            hear((self.server, self.pool), i, reply);
        }
    }

    /// It is not waited for any more: what is on its way goes on, and is owed.
    fn leave(mut self, fan: &Fan<'_>, limit: Duration, hear: &mut dyn FnMut(usize, &Pool, usize, Reply)) {
        let waited_out = Moment::now() >= fan.until;
        let failure = if waited_out { Failure::timeout(limit) } else { Failure::new(Class::Exhausted) };
        let (server, pool, owed) = (self.server, self.pool, self.awaited.len());
        self.fail(&failure, &mut |_, i, reply| hear(server, pool, i, reply), fan.width);
        match self.stage {
            Stage::Opening(opening) => self.slot.opening = Some(opening),
            // Not even in the time that it has: a connection that may be out of step, or lead to nobody.
            Stage::Asked(_) if waited_out => {}
            Stage::Asked(mut live) => {
                live.owed += owed;
                self.slot.put_back(live, Moment::now());
            }
            Stage::Done => {}
        }
    }
}

/// Is it certain whose answer this is? An error has no number.
fn is_of(command: &Command, value: &Value) -> bool {
    !matches!(value, Value::ServerError(_)) && command.owns(value)
}

/// How long a connection may take to be opened, whoever waits for it.
const OPENING: Duration = Duration::from_secs(1);
