//! What went wrong with a call, by what to do about it.
//!
//! Inside scripts the first word of an error is not reliable: up to 6.2 every error is `ERR Error
//! running script … -READONLY …`, and what an ACL refuses is an `ERR` of its own text. So the text is
//! looked at, not only the code.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use redis::{ErrorKind as RedisKind, RedisError};

/// Why a call has no useful answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) cause: Option<Cause>,
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
        Failure { class, cause: None }
    }

    pub(crate) fn with_text(class: Class, text: &str) -> Failure {
        Failure { class, cause: Some(Cause::Text(text.into())) }
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
        Failure { class: classify(&e), cause: Some(Cause::Redis(e)) }
    }

    /// An error answer of the server.
    pub(crate) fn from_server(e: redis::ServerError) -> Failure {
        let e = RedisError::from(e);
        Failure { class: classify(&e), cause: Some(Cause::Redis(e)) }
    }

    /// Worth trying again later, as it is.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.class, Class::Unreachable | Class::Exhausted | Class::Role | Class::Unavailable)
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
        self.class == Class::Unreachable && matches!(self.cause, Some(Cause::Redis(_)))
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
        }
    }
}

/// What the server, the system or the crate itself said: the source of an error.
#[derive(Clone)]
pub(crate) enum Cause {
    Redis(RedisError),
    Text(Arc<str>),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Text(text) => f.write_str(text),
            // An error answer in the server's own words.
            Cause::Redis(e) => match (e.code(), e.detail()) {
                (Some(code), Some(detail)) => write!(f, "{code} {detail}"),
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

/// The first word of an error answer, and what it means. ASK and MOVED reach us only where an
/// address is one node of a cluster.
const CODES: [(&str, Class); 17] = [
    ("NOSCRIPT", Class::NoScript),
    ("READONLY", Class::Role),
    ("MASTERDOWN", Class::Role),
    ("LOADING", Class::Unavailable),
    ("BUSY", Class::Unavailable),
    ("CLUSTERDOWN", Class::Unavailable),
    ("TRYAGAIN", Class::Unavailable),
    ("NOREPLICAS", Class::Unavailable),
    ("OOM", Class::Unavailable),
    ("MISCONF", Class::Unavailable),
    ("UNKILLABLE", Class::Unavailable),
    ("MOVED", Class::Setup),
    ("ASK", Class::Setup),
    ("NOAUTH", Class::Denied),
    ("WRONGPASS", Class::Denied),
    ("NOPERM", Class::Denied),
    ("WRONGTYPE", Class::WrongType),
];

/// Other texts of answers that begin with a plain `ERR`.
const TEXTS: [(&str, Class); 6] = [
    ("max number of clients", Class::Unavailable),
    ("The user executing the script can't", Class::Denied),
    ("ACL failure in script", Class::Denied),
    ("invalid password", Class::Denied),
    ("without any password configured", Class::Denied),
    ("DB index is out of range", Class::Setup),
];

fn classify(e: &RedisError) -> Class {
    match e.kind() {
        RedisKind::Io => return Class::Unreachable,
        RedisKind::AuthenticationFailed => return Class::Denied,
        RedisKind::InvalidClientConfig => return Class::Setup,
        // Retried inside the cluster client, and down for as long as they come through.
        RedisKind::ClusterConnectionNotFound => return Class::Unreachable,
        _ => {}
    }
    let (code, text) = (e.code().unwrap_or_default(), e.detail().unwrap_or_default());
    let by_code = CODES.iter().find(|(word, _)| code == *word || (code == "ERR" && raised(text, word)));
    let by_text = || TEXTS.iter().find(|(words, _)| text.contains(words));
    by_code.or_else(by_text).map_or(Class::Protocol, |(_, class)| *class)
}

/// `… -READONLY You can't write …`, as 6.2 reports what a command in a script answered.
fn raised(text: &str, word: &str) -> bool {
    text.split([' ', ':']).any(|part| part.strip_prefix('-') == Some(word))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// As servers send them; the code is the first word.
    fn class_of(answer: &str) -> Class {
        let (code, detail) = answer.split_once(' ').unwrap_or((answer, ""));
        classify(&redis::make_extension_error(code.to_owned(), Some(detail.to_owned())))
    }

    #[test]
    fn error_answers_are_sorted_by_what_to_do() {
        let table = [
            ("NOSCRIPT No matching script. Please use EVAL.", Class::NoScript),
            ("READONLY You can't write against a read only replica. script: f0, on @user_script:7.", Class::Role),
            (
                "ERR Error running script (call to f_12): @user_script:5: @user_script: 5: -READONLY You can't write against a read only replica. ",
                Class::Role,
            ),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Class::Role),
            ("LOADING Redis is loading the dataset in memory", Class::Unavailable),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                Class::Unavailable,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", Class::Unavailable),
            ("ERR Error running script (call to f_12): @user_script:5: -OOM command not allowed", Class::Unavailable),
            ("MISCONF Redis is configured to save RDB snapshots", Class::Unavailable),
            ("NOREPLICAS Not enough good replicas to write.", Class::Unavailable),
            ("ERR max number of clients reached", Class::Unavailable),
            ("NOAUTH Authentication required.", Class::Denied),
            ("WRONGPASS invalid username-password pair or user is disabled.", Class::Denied),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Class::Denied),
            ("ERR The user executing the script can't run this command or subcommand script: f0", Class::Denied),
            ("ERR ACL failure in script: User x has no permissions to run the 'get' command", Class::Denied),
            ("ERR AUTH <password> called without any password configured for the default user.", Class::Denied),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Class::WrongType),
            ("ERR DB index is out of range", Class::Setup),
            ("MOVED 1234 127.0.0.1:7001", Class::Setup),
            ("ERR unknown command 'EVALSHA'", Class::Protocol),
        ];
        for (answer, class) in table {
            assert_eq!(class_of(answer), class, "{answer}");
        }
    }

    #[test]
    fn a_name_inside_an_error_does_not_change_its_class() {
        assert_eq!(class_of("NOPERM User OOM has no permissions to access the 'READONLY' key"), Class::Denied);
        assert_eq!(class_of("ERR unknown command 'LOADING'"), Class::Protocol);
    }

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
