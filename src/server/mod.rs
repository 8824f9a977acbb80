//! One Redis server: connections under deadlines, scripts, and what errors mean.
//!
//! A [`Link`] carries packed commands and knows nothing of locks; `script` knows keys, arguments and
//! answers and does no I/O; [`ask`] puts the two together.

mod aside;
mod cluster;
mod failure;
#[cfg(unix)]
mod fan;
mod given;
mod handshake;
mod health;
mod intercept;
mod link;
#[cfg(unix)]
mod opening;
mod pool;
mod scheduler;
pub(crate) mod script;
mod sentinel;
pub(crate) mod server_clock;
mod slot;
mod sorting;
mod subscription;
mod wire;

use std::time::Duration;

use redis::Value;

use crate::clock::Moment;
use script::{Command, Guarded, How, Request};

pub(crate) use cluster::Cluster;
pub(crate) use failure::{Cause, Class, Failure};
#[cfg(unix)]
pub(crate) use fan::{Fan, fan_out};
pub(crate) use given::Given;
pub(crate) use handshake::{Address, clock_of};
#[cfg(test)]
pub(crate) use health::Health;
pub(crate) use intercept::Intercept;
pub(crate) use link::{Link, Reply};
pub(crate) use pool::Pool;
pub(crate) use sentinel::Sentinels;
pub(crate) use sorting::{CLUSTER, OLD};
pub(crate) use subscription::{Go, Heard};

/// Runs one script: by its digest, and by its source where the server does not know it.
pub(crate) fn ask(link: &dyn Link, request: &Request<'_>, until: Moment) -> Reply {
    let reply = link.call(&request.pack(How::Hash), until);
    if !reply.is_no_script() {
        return reply;
    }
    link.call(&request.pack(How::Source), until).after(reply)
}

/// Runs one script and asks how many replicas have what it wrote, which waits for `n` of them for up to
/// `time`: in one round trip where they are quick.
pub(crate) fn ask_copied(
    link: &dyn Link,
    request: &Request<'_>,
    (n, time): (u32, Duration),
    until: Moment,
) -> (Reply, Result<u64, Failure>) {
    // Never 0, which waits for ever.
    let wait = ["WAIT", &n.to_string(), &time.as_millis().max(1).to_string()];
    let together = |how| link.call_together(&[request.pack(how), Command::plain(&wait)], until);
    let mut replies = together(How::Hash);
    if replies[0].is_no_script() {
        let before = std::mem::replace(&mut replies, together(How::Source));
        replies[0].ghost |= before[0].ghost;
    }
    let copies = replies.swap_remove(1).answer.and_then(|count| match count {
        Value::Int(count) => Ok(u64::try_from(count).unwrap_or(0)),
        other => Err(Failure::with_text(Class::Protocol, &format!("WAIT does not answer {other:?}"))),
    });
    (replies.swap_remove(0), copies)
}

/// Runs one script that must not be executed twice.
pub(crate) fn ask_once(link: &dyn Link, request: &Request<'_>, until: Moment) -> Reply {
    let reply = link.call_once(&request.pack(How::Hash), until);
    // Not known, so not executed.
    if reply.is_no_script() { link.call_once(&request.pack(How::Source), until) } else { reply }
}

/// Runs a guarded write, once.
pub(crate) fn write(link: &dyn Link, write: &Guarded<'_>, n: u64, until: Moment) -> Reply {
    let reply = link.call_once(&write.pack(How::Hash, n), until);
    // Not known, so not executed.
    if reply.is_no_script() { link.call_once(&write.pack(How::Source, n), until) } else { reply }
}

/// Runs many scripts in one batch under one deadline; the answers are each request's own. Scripts that
/// the server does not know go out once more, by their source.
pub(crate) fn ask_all(link: &dyn Link, requests: &[Request<'_>], until: Moment) -> Vec<Reply> {
    let commands: Vec<_> = requests.iter().map(|request| request.pack(How::Hash)).collect();
    let mut replies = link.call_all(&commands, until);
    let unknown: Vec<usize> = (0..replies.len()).filter(|&i| replies[i].is_no_script()).collect();
    if unknown.is_empty() {
        return replies;
    }
    let commands: Vec<_> = unknown.iter().map(|&i| requests[i].pack(How::Source)).collect();
    for (i, reply) in unknown.into_iter().zip(link.call_all(&commands, until)) {
        let before = std::mem::replace(&mut replies[i], reply);
        replies[i].ghost |= before.ghost;
    }
    replies
}

/// Runs one plain command.
pub(crate) fn plain(link: &dyn Link, parts: &[&str], until: Moment) -> Result<Value, Failure> {
    link.call(&Command::plain(parts), until).answer
}
