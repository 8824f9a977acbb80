//! What the guarded writes of a guard and of a fence gate have in common.

use std::{fmt, time::Duration};

use redis::{ConnectionLike, RedisResult};

use crate::error::{self, Error, Result};
use crate::nodes::{Condition, Nodes, Unwritten, Written};
use crate::server::Intercept;

/// Why there is no answer.
enum Stopped {
    Impossible(String),
    Unwritten(Unwritten),
    Refused(Written),
}

/// Runs what `send` sends if the condition holds; the inner error says that it did not. `place` is for
/// errors, after "write".
pub(crate) fn run<T>(
    nodes: &dyn Nodes,
    condition: Condition<'_>,
    io: Duration,
    place: impl fmt::Display,
    send: impl FnOnce(&mut dyn ConnectionLike) -> RedisResult<T>,
) -> Result<Result<T, Written>> {
    let outcome = Intercept::of(
        |writes| {
            writes.check().map_err(Stopped::Impossible)?;
            match nodes.write(condition, writes, io).map_err(Stopped::Unwritten)? {
                Written::Done(answers) => Ok(answers),
                refused => Err(Stopped::Refused(refused)),
            }
        },
        |intercept| send(intercept),
    );
    match outcome {
        Ok(answer) => answer.map(Ok).map_err(|e| error::of_answers(place, e)),
        Err(Stopped::Refused(refused)) => Ok(Err(refused)),
        Err(Stopped::Unwritten(unwritten)) => Err(error::of_write(place, unwritten)),
        Err(Stopped::Impossible(text)) => Err(Error::invalid(format!("cannot write {place}: {text}"))),
    }
}
