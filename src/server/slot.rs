//! One place for a connection in the pool: connects when it is used, under its user's deadline.
//!
//! r2d2 connects on threads of its own, where one silent server delays every pool, and reports errors
//! as text after its whole limit. So what it pools is a [`Slot`], which costs nothing to make. A
//! connection is out of its slot while it is used and goes back only after a whole answer: whatever
//! broke, timed out or is out of step is never used again.

use std::time::Duration;

use redis::Value;

use super::failure::{Class, Failure};
use super::handshake::Address;
use super::health::Health;
use super::script::Command;
use super::wire::Wire;
use crate::clock::Moment;

#[derive(Default)]
pub(crate) struct Slot {
    live: Option<Live>,
    /// One that is being opened, by a caller that did not wait for it.
    #[cfg(unix)]
    pub(super) opening: Option<super::opening::Opening>,
}

pub(super) struct Live {
    pub(super) wire: Wire,
    /// The generation of the server's connections that it belongs to; older ones are retired.
    generation: u64,
    used: Moment,
    /// Answers that nobody waits for any more, and that come before the next one's.
    pub(super) owed: usize,
}

/// What came of one exchange.
pub(crate) struct Exchanged {
    pub(crate) answer: Result<Value, Failure>,
    /// The request left: the server may have executed it, or may yet.
    pub(crate) sent: bool,
    /// It went over a connection that had waited in the slot.
    pub(crate) reused: bool,
    /// When it ended.
    pub(crate) at: Moment,
}

impl Exchanged {
    fn unsent(failure: Failure, reused: bool) -> Exchanged {
        Exchanged { answer: Err(failure), sent: false, reused, at: Moment::now() }
    }
}

impl Slot {
    /// Sends one command and reads its answer.
    pub(crate) fn exchange(&mut self, to: &Address, health: &Health, command: &Command, until: Moment) -> Exchanged {
        let start = Moment::now();
        let limit = start.until(until);
        let (mut live, reused) = match self.take(to, health, until) {
            Ok(taken) => taken,
            Err(failure) => return Exchanged::unsent(failure, false),
        };
        // A connection that had waited is ready at once; another took its time.
        let now = if reused { start } else { Moment::now() };
        if now >= until {
            return Exchanged::unsent(Failure::timeout(limit), reused);
        }
        let sent = live.wire.send(&command.bytes, now, until);
        let answer = judge(sent.and_then(|()| live.wire.receive(until)), command, limit);
        let at = Moment::now();
        if is_whole(&answer) {
            self.put_back(live, at);
        }
        Exchanged { answer, sent: true, reused, at }
    }

    /// Sends many commands at once and reads their answers under one deadline. Answers that did not
    /// come are failures, each for its own command.
    pub(crate) fn exchange_all(
        &mut self,
        to: &Address,
        health: &Health,
        commands: &[Command],
        until: Moment,
    ) -> (Vec<Result<Value, Failure>>, bool) {
        let limit = Moment::now().until(until);
        let (mut live, reused) = match self.take(to, health, until) {
            Ok(taken) => taken,
            Err(failure) => return (vec![Err(failure); commands.len()], false),
        };
        let bytes: Vec<u8> = commands.iter().flat_map(|command| &command.bytes).copied().collect();
        if let Err(e) = live.wire.send(&bytes, Moment::now(), until) {
            return (vec![Err(Failure::from_redis(e, limit)); commands.len()], reused);
        }
        let mut answers = Vec::with_capacity(commands.len());
        while answers.len() < commands.len() {
            let answer = judge(live.wire.receive(until), &commands[answers.len()], limit);
            let whole = is_whole(&answer);
            answers.push(answer);
            if !whole {
                // Nothing after it will be read: the same failure for the rest.
                if let Some(Err(failure)) = answers.last().cloned() {
                    answers.resize(commands.len(), Err(failure));
                }
                return (answers, reused);
            }
        }
        self.put_back(live, Moment::now());
        (answers, reused)
    }

    /// Is a usable connection waiting here?
    fn take(&mut self, to: &Address, health: &Health, until: Moment) -> Result<(Live, bool), Failure> {
        let generation = health.generation();
        if let Some(live) = self.live.take().filter(|live| live.generation == generation && live.owed == 0) {
            return Ok((live, true));
        }
        let ready = to.connect(until)?;
        health.clock.set(ready.clock, Moment::now());
        Ok((Live::new(ready.wire, generation), false))
    }

    /// What stands here, if it is of this generation.
    #[cfg(unix)]
    pub(super) fn take_live(&mut self, generation: u64) -> Option<Live> {
        self.live.take().filter(|live| live.generation == generation)
    }

    pub(super) fn put_back(&mut self, live: Live, used: Moment) {
        self.live = Some(Live { used, ..live });
    }

    /// Closes a connection that nobody has used since `since`.
    pub(crate) fn close_unused(&mut self, since: Moment) {
        if self.live.as_ref().is_some_and(|live| live.used < since) {
            self.live = None;
        }
    }

    /// Does a connection stand here that nobody has used for so long?
    pub(crate) fn has_waited_for(&self, time: Duration) -> bool {
        self.live.as_ref().is_some_and(|live| live.used.after(time) < Moment::now())
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.live.is_some()
    }
}

impl Live {
    pub(super) fn new(wire: Wire, generation: u64) -> Live {
        Live { wire, generation, used: Moment::now(), owed: 0 }
    }
}

/// What the redis crate makes of a reply, sorted; the reply to another command is a failure.
pub(crate) fn judge(reply: redis::RedisResult<Value>, to: &Command, limit: Duration) -> Result<Value, Failure> {
    match reply {
        Ok(Value::ServerError(e)) => Err(Failure::from_server(e)),
        Ok(value) if to.owns(&value) => Ok(value),
        Ok(_) => Err(Failure::new(Class::Astray)),
        Err(e) => Err(Failure::from_redis(e, limit)),
    }
}

/// A whole answer was read, so the next one on this connection belongs to the next command. (A reply
/// that does not parse is none, though it has no code either.)
fn is_whole(answer: &Result<Value, Failure>) -> bool {
    match answer {
        Ok(_) => true,
        Err(f) => f.class != Class::Unreachable && f.class != Class::Role && f.is_server_answer(),
    }
}
