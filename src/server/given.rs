//! A pool that the application made: its manager's connections, its manager's limits.
//!
//! A connection of somebody else's cannot be marked broken and has the time limits that it was opened
//! with. What protects us is the number at the end of every answer.

use std::{any::Any, fmt, time::Duration};

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
            None => self.health.no_connection_since(start),
        })
    }

    fn once(&self, command: &Command, until: Moment) -> Reply {
        let limit = Moment::now().until(until);
        let mut connection = match self.check_out(until) {
            Ok(connection) => connection,
            Err(failure) => return failed(failure),
        };
        reply(judge(connection.req_packed_command(&command.bytes), command, limit))
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

    fn call_all(&self, commands: &[Command], until: Moment) -> Vec<Reply> {
        let limit = Moment::now().until(until);
        let mut connection = match self.check_out(until) {
            Ok(connection) => connection,
            Err(failure) => {
                self.health.note::<Value>(&Err(failure.clone()), Moment::now());
                return commands.iter().map(|_| failed(failure.clone())).collect();
            }
        };
        let connection = &mut *connection;
        // Only a plain connection is known to keep the order of a batch and to send each command to
        // the right place.
        let replies = match (connection as &mut dyn Any).downcast_mut::<redis::Connection>() {
            Some(plain) => in_one_trip(plain, commands, limit),
            None => one_by_one(connection, commands, until),
        };
        replies.iter().for_each(|reply| self.health.note(&reply.answer, reply.at));
        replies
    }

    fn health(&self) -> &Health {
        &self.health
    }
}

fn in_one_trip(connection: &mut redis::Connection, commands: &[Command], limit: Duration) -> Vec<Reply> {
    let bytes: Vec<u8> = commands.iter().flat_map(|command| &command.bytes).copied().collect();
    match connection.req_packed_commands(&bytes, 0, commands.len()) {
        Ok(answers) if answers.len() == commands.len() => answers
            .into_iter()
            .zip(commands)
            .map(|(answer, command)| reply(judge(Ok(answer), command, limit)))
            .collect(),
        Ok(_) => all_failed(&Failure::new(Class::Astray), commands),
        Err(e) => all_failed(&Failure::from_redis(e, limit), commands),
    }
}

fn one_by_one(connection: &mut impl ConnectionLike, commands: &[Command], until: Moment) -> Vec<Reply> {
    let limit = Moment::now().until(until);
    commands
        .iter()
        .map(|command| {
            if Moment::now() >= until {
                return failed(Failure::timeout(limit));
            }
            reply(judge(connection.req_packed_command(&command.bytes), command, limit))
        })
        .collect()
}

fn all_failed(failure: &Failure, commands: &[Command]) -> Vec<Reply> {
    commands.iter().map(|_| reply(Err(failure.clone()))).collect()
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
