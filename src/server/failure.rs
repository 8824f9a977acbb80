//! What went wrong with a call: by what to do about it, with one line of advice where there is one.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use redis::{ErrorKind as RedisKind, RedisError};

use super::sorting::{self, sort};

/// Why a call has no useful answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) cause: Option<Cause>,
    /// What is the matter and what to do, for who meets it first; empty where the class says enough.
    pub(crate) advice: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// No connection, no answer in time, or a connection that broke.
    Unreachable,
    /// No pooled connection became free, and the server does answer.
    Exhausted,
    /// A replica or a demoted master: its connections are dropped.
    Role,
    /// The server answers that it cannot now: LOADING, BUSY, OOM, MISCONF, NOREPLICAS …
    Unavailable,
    /// Granted, and on too few replicas: it was not acquired.
    Uncopied,
    /// Credentials or rights.
    Denied,
    /// The key holds something that is no lock.
    WrongType,
    /// The set-up cannot work: an address, a database number, a server that is too old.
    Setup,
    /// Not Redis, an answer to another call, or a bug.
    Protocol,
    /// The answer to another call: the connection is out of step, the outcome unknown.
    Astray,
    /// The server does not know the script: send its source.
    NoScript,
}

impl Failure {
    pub(crate) fn new(class: Class) -> Failure {
        Failure { class, cause: None, advice: "" }
    }

    pub(crate) fn with_text(class: Class, text: &str) -> Failure {
        Failure { class, cause: Some(Cause::Text(text.into())), advice: "" }
    }

    pub(crate) fn advising(self, advice: &'static str) -> Failure {
        Failure { advice, ..self }
    }

    /// An I/O deadline of `limit` was over.
    pub(crate) fn timeout(limit: Duration) -> Failure {
        Failure::with_text(Class::Unreachable, &format!("no answer within {limit:.0?}"))
    }

    /// Sorts an error of the redis crate; `limit` is the time that the call had.
    pub(crate) fn from_redis(e: RedisError, limit: Duration) -> Failure {
        if e.is_timeout() {
            return Failure::timeout(limit);
        }
        Failure::sorted(e)
    }

    /// As [`from_redis`](Failure::from_redis), before there was a connection to this address.
    pub(crate) fn connecting(address: &impl fmt::Display, e: RedisError, limit: Duration) -> Failure {
        let failure = Failure::from_redis(e, limit);
        match failure.cause {
            Some(Cause::Redis(e)) => {
                Failure { cause: Some(Cause::Connecting(address.to_string().into(), e)), ..failure }
            }
            _ => failure,
        }
    }

    /// An error answer of the server.
    pub(crate) fn from_server(e: redis::ServerError) -> Failure {
        Failure::sorted(RedisError::from(e))
    }

    fn sorted(e: RedisError) -> Failure {
        let (class, advice) = sort(&e);
        Failure { class, cause: Some(Cause::Redis(e)), advice }
    }

    /// The server closed the connection before it said a word.
    pub(crate) fn before_a_word(self) -> Failure {
        if self.is_disconnect() { self.advising(sorting::CLOSED) } else { self }
    }

    /// Worth trying again later, as it is.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.class, Class::Unreachable | Class::Exhausted | Class::Role | Class::Unavailable | Class::Uncopied)
    }

    /// Another connection may do what this one could not.
    pub(crate) fn wants_fresh_connection(&self) -> bool {
        self.class == Class::Role || self.is_disconnect()
    }

    /// The server said it: a whole answer, and the connection is in step.
    pub(crate) fn is_server_answer(&self) -> bool {
        let Some(Cause::Redis(e)) = &self.cause else { return false };
        matches!(e.kind(), RedisKind::Server(_) | RedisKind::Extension)
    }

    /// The connection broke (as against: no answer came in time).
    pub(crate) fn is_disconnect(&self) -> bool {
        self.class == Class::Unreachable && matches!(self.cause, Some(Cause::Redis(_) | Cause::Connecting(..)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.cause, self.class) {
            (Some(cause), _) => cause.fmt(f),
            (None, Class::Unreachable) => f.write_str("it did not answer before"),
            (None, Class::Exhausted) => f.write_str("no pooled connection became free"),
            (None, Class::Astray) => f.write_str("the answer belongs to another call"),
            (None, class) => write!(f, "{class:?}"),
        }?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, ": {}", self.advice) }
    }
}

/// What the server, the system or the crate itself said: the source of an error.
#[derive(Clone)]
pub(crate) enum Cause {
    Redis(RedisError),
    /// To this address.
    Connecting(Arc<str>, RedisError),
    Text(Arc<str>),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Text(text) => f.write_str(text),
            // What does not parse is reported on several lines.
            Cause::Connecting(address, e) => write!(f, "{address}: {}", e.to_string().trim_end().replace('\n', ", ")),
            // An error answer in the server's own words, without our own that it repeats.
            Cause::Redis(e) => match (e.code(), e.detail()) {
                (Some(code), Some(detail)) => {
                    let theirs = detail.split_once(", with args beginning").map_or(detail, |(theirs, _)| theirs);
                    write!(f, "{code} {theirs}")
                }
                _ => e.fmt(f),
            },
        }
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Cause {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_timeout_names_the_limit_and_is_no_disconnect() {
        let e = RedisError::from(io::Error::from(io::ErrorKind::WouldBlock));
        let failure = Failure::from_redis(e, Duration::from_millis(250));
        assert_eq!(failure.to_string(), "no answer within 250ms");
        assert!(!failure.is_disconnect());
        let e = RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        assert!(Failure::from_redis(e, Duration::ZERO).is_disconnect());
    }
}
