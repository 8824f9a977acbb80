//! A pool that the application made: its manager's connections, its manager's limits.
//!
//! A connection of somebody else's cannot be marked broken and has the time limits that it was opened
//! with. What protects us is the number at the end of every answer.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use redis::{ConnectionLike, Value};

use super::failure::{Class, Failure};
use super::health::Health;
use super::link::{Link, Reply};
use super::script::Command;
use super::slot::judge;
use crate::clock::Moment;

pub(crate) struct Given<M: r2d2::ManageConnection> {
    pool: r2d2::Pool<M>,
    health: Health,
}

impl<M> Given<M>
where
    M: r2d2::ManageConnection,
    M::Connection: ConnectionLike,
{
    pub(crate) fn new(pool: r2d2::Pool<M>) -> Given<M> {
        Given { pool, health: Health::default() }
    }

    fn check_out(&self, until: Moment) -> Result<r2d2::PooledConnection<M>, Failure> {
        let start = Moment::now();
        let time = start.until(until).max(Duration::from_millis(1));
        self.pool.get_timeout(time).map_err(|e| match e.to_string().split_once(": ") {
            // r2d2 appends what its manager last said.
            Some((_, cause)) => Failure::with_text(Class::Unreachable, cause),
            // Not down as far as we know: then the application has all of its connections in use.
            None if self.health.has_answered_since(start) => Failure::new(Class::Exhausted),
            None => self.health.why_down().unwrap_or(Failure::new(Class::Exhausted)),
        })
    }

    fn once(&self, command: &Command, until: Moment) -> Reply {
        let limit = Moment::now().until(until);
        let mut connection = match self.check_out(until) {
            Ok(connection) => connection,
            Err(failure) => return failed(failure),
        };
        reply(exchange(&mut *connection, command, limit))
    }
}

impl<M> Link for Given<M>
where
    M: r2d2::ManageConnection,
    M::Connection: ConnectionLike,
{
    fn call(&self, command: &Command, until: Moment) -> Reply {
        let first = self.once(command, until);
        self.health.note(&first.answer, first.at);
        if !(first.ghost && matches!(&first.answer, Err(failure) if failure.is_disconnect())) {
            return first;
        }
        let again = self.once(command, until).after(first);
        self.health.note(&again.answer, again.at);
        again
    }

    fn call_once(&self, command: &Command, until: Moment) -> Reply {
        let reply = self.once(command, until);
        self.health.note(&reply.answer, reply.at);
        reply
    }

    fn call_together(&self, commands: &[Command], until: Moment) -> Vec<Reply> {
        self.call_all(commands, until)
    }

    fn call_all(&self, commands: &[Command], until: Moment) -> Vec<Reply> {
        let mut connection = match self.check_out(until) {
            Ok(connection) => connection,
            Err(failure) => {
                self.health.note::<Value>(&Err(failure.clone()), Moment::now());
                return commands.iter().map(|_| failed(failure.clone())).collect();
            }
        };
        let replies = one_by_one(&mut *connection, commands, until);
        replies.iter().for_each(|reply| self.health.note(&reply.answer, reply.at));
        replies
    }

    fn health(&self) -> &Health {
        &self.health
    }
}

/// Not in one trip: when an answer does not come, the redis crate waits for each of the others as long
/// again, under limits that are not ours.
fn one_by_one(connection: &mut impl ConnectionLike, commands: &[Command], until: Moment) -> Vec<Reply> {
    let limit = Moment::now().until(until);
    let mut broken = None;
    let mut once = |command: &Command| match &broken {
        Some(failure) => failed(Failure::clone(failure)),
        None if Moment::now() >= until => failed(Failure::timeout(limit)),
        None => {
            let reply = reply(exchange(connection, command, limit));
            // Whatever is wrong with the connection: the next answer would be waited for in vain.
            broken = reply.answer.as_ref().err().filter(|failure| failure.class == Class::Unreachable).cloned();
            reply
        }
    };
    commands.iter().map(&mut once).collect()
}

/// The connection is not ours: a panic in it is contained, and is an unknown outcome like any other.
fn exchange(connection: &mut impl ConnectionLike, command: &Command, limit: Duration) -> Result<Value, Failure> {
    let exchanged = catch_unwind(AssertUnwindSafe(|| connection.req_packed_command(&command.bytes)));
    let panicked = |_| Err(Failure::with_text(Class::Protocol, "the connection of the given pool panicked"));
    exchanged.map_or_else(panicked, |reply| judge(reply, command, limit))
}

fn reply(answer: Result<Value, Failure>) -> Reply {
    let ghost = matches!(&answer, Err(failure) if !failure.is_server_answer());
    Reply { answer, ghost, at: Moment::now() }
}

/// Nothing was sent.
fn failed(failure: Failure) -> Reply {
    Reply { answer: Err(failure), ghost: false, at: Moment::now() }
}

impl<M: r2d2::ManageConnection> fmt::Debug for Given<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("pool", &self.pool.state()).finish_non_exhaustive()
    }
}
