//! The way to one server: a command goes out, its answer or a failure comes back, within a deadline.

use std::{fmt, time::Duration};

use redis::Value;

use super::failure::{Class, Failure};
use super::health::Health;
use super::script::Command;
use super::subscription::{Go, Heard};
use crate::clock::Moment;

/// What came of one command.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) answer: Result<Value, Failure>,
    /// A copy of the command may be executed without its answer being this one: its answer was lost,
    /// or has not come.
    pub(crate) ghost: bool,
    /// When the answer was there, or given up.
    pub(crate) at: Moment,
}

impl Reply {
    pub(crate) fn is_no_script(&self) -> bool {
        matches!(&self.answer, Err(failure) if failure.class == Class::NoScript)
    }

    /// This reply, to a command that was sent again after `earlier`.
    pub(crate) fn after(mut self, earlier: Reply) -> Reply {
        self.ghost |= earlier.ghost;
        self
    }
}

/// Connections to one server, of our own or given.
pub(crate) trait Link: Send + Sync + fmt::Debug {
    /// One command on a pooled connection, once more on a fresh one where a connection that had
    /// waited turns out to be broken. On connections of our own it ends by `until`.
    fn call(&self, command: &Command, until: Moment) -> Reply;

    /// Commands on one pooled connection, sent at once; the answers are in their order. For the rest as
    /// [`call`](Link::call).
    fn call_together(&self, commands: &[Command], until: Moment) -> Vec<Reply>;

    /// One command that must not be executed twice: it is sent once, on a connection that is known to
    /// be open.
    fn call_once(&self, command: &Command, until: Moment) -> Reply;

    /// Many commands, on a connection that callers do not compete for where there is one. The answers
    /// are in the order of the commands; one bad answer disturbs no other.
    fn call_all(&self, commands: &[Command], until: Moment) -> Vec<Reply>;

    fn health(&self) -> &Health;

    /// Do all connections lead to one address, whatever the key?
    fn is_one_address(&self) -> bool {
        false
    }

    /// Can a subscription be had here?
    fn can_listen(&self) -> bool {
        false
    }

    /// Listens to a channel on a connection of its own, until that breaks or `hear` says to stop.
    fn listen(&self, _channel: &str, _io: Duration, _hear: &mut dyn FnMut(Heard<'_>) -> Go) -> Result<(), Failure> {
        Err(Failure::with_text(Class::Setup, "a given pool has no connection for a subscription"))
    }
}
