//! What an error of the redis crate or of a server means, and what to do about it: two tables.
//!
//! Inside scripts the first word of an error is not reliable: up to 6.2 every error is `ERR Error
//! running script … -READONLY …`, and what an ACL refuses is an `ERR` of its own text. So the text is
//! looked at, not only the code.
//!
//! The advice is for who meets the error first, at set-up: one line that goes on after "cannot acquire
//! lock … on …: ". What passes by itself needs none.

use redis::{ErrorKind as RedisKind, RedisError};

use super::failure::Class;

/// A port for TLS closes at the first plain word.
pub(super) const CLOSED: &str =
    "the connection was closed before a word was said; a port for TLS wants rediss://, else check host and port";
pub(super) const SENTINEL: &str =
    "a Sentinel listens there: see ClientOptions::open_sentinel, or give the address of the master that it watches";
pub(super) const NO_SERVICE: &str = "check the name of the service, which stands in the place of the master's host";
pub(super) const NO_SENTINEL: &str = "no Sentinel listens there; check host and port (26379 is usual)";
pub(crate) const CLUSTER: &str = "this address is one node of a cluster: see ClientOptions::open_cluster";
pub(crate) const OLD: &str = "the server must be Redis 6.2 or newer, or Valkey";

const REFUSED: &str = "nothing listens there; check host and port, and that Redis runs";
const NO_REDIS: &str = "what answers there does not speak Redis; check host and port (a port for TLS wants rediss://)";
const CLUSTER_DOWN: &str =
    "this address is one node of a cluster that is down or lacks slots: see ClientOptions::open_cluster";
const REPLICA: &str = "it is a replica; locks are taken at the master, so give the master's address";
const NO_PASSWORD: &str = "the server wants a password; give redis://:password@host or redis://user:password@host";
const WRONG_PASSWORD: &str =
    "the server refuses the user or the password; in an address / # % in it are written %2F %23 %25";
const NONE_SET: &str = "the server has no password set; leave it out of the address, or set one there";
const PROTECTED: &str = "the server is in protected mode; it answers its own host alone until it has a password";
const NO_RIGHT: &str = "the user lacks a right that locks need; LockClient::ping's documentation lists them";
const NO_COMMAND: &str =
    "the server lacks a command that locks need; is it renamed, disabled, or older than Redis 6.2?";
const NO_DATABASE: &str = "there is no database of that number; Redis has 0 to 15, if not configured otherwise";
const NO_LOCK: &str = "its key holds something that is no lock; choose another key";

type Row = (&'static str, Class, &'static str);

/// The first word of an error answer. On a cluster ASK and MOVED are followed; they come this far only where
/// an address is one node of it.
const CODES: [Row; 18] = [
    ("NOSCRIPT", Class::NoScript, ""),
    ("READONLY", Class::Role, REPLICA),
    ("MASTERDOWN", Class::Role, REPLICA),
    ("LOADING", Class::Unavailable, ""),
    ("BUSY", Class::Unavailable, ""),
    ("CLUSTERDOWN", Class::Unavailable, CLUSTER_DOWN),
    ("TRYAGAIN", Class::Unavailable, ""),
    ("NOREPLICAS", Class::Unavailable, ""),
    ("OOM", Class::Unavailable, ""),
    ("MISCONF", Class::Unavailable, ""),
    ("UNKILLABLE", Class::Unavailable, ""),
    ("MOVED", Class::Setup, CLUSTER),
    ("ASK", Class::Setup, CLUSTER),
    ("NOAUTH", Class::Denied, NO_PASSWORD),
    ("WRONGPASS", Class::Denied, WRONG_PASSWORD),
    ("DENIED", Class::Denied, PROTECTED),
    ("NOPERM", Class::Denied, NO_RIGHT),
    ("WRONGTYPE", Class::WrongType, NO_LOCK),
];

/// Other texts of answers that begin with a plain `ERR`. What scripts are refused stands before what
/// may be quoted in a refusal.
const TEXTS: [Row; 10] = [
    ("max number of clients", Class::Unavailable, ""),
    ("The user executing the script can't", Class::Denied, NO_RIGHT),
    ("ACL failure in script", Class::Denied, NO_RIGHT),
    ("invalid password", Class::Denied, WRONG_PASSWORD),
    ("without any password configured", Class::Denied, NONE_SET),
    ("DB index is out of range", Class::Setup, NO_DATABASE),
    ("SELECT is not allowed in cluster mode", Class::Setup, CLUSTER),
    ("commands not allowed after non deterministic commands", Class::Setup, OLD),
    ("unknown command", Class::Protocol, NO_COMMAND),
    ("Unknown Redis command called from", Class::Protocol, NO_COMMAND),
];

pub(super) fn sort(e: &RedisError) -> (Class, &'static str) {
    match e.kind() {
        RedisKind::Io if e.is_connection_refusal() => return (Class::Unreachable, REFUSED),
        RedisKind::Io => return (Class::Unreachable, ""),
        RedisKind::AuthenticationFailed => return (Class::Denied, ""),
        RedisKind::InvalidClientConfig => return (Class::Setup, ""),
        // Retried inside the cluster client, and down for as long as they come through.
        RedisKind::ClusterConnectionNotFound => return (Class::Unreachable, ""),
        RedisKind::Parse => return (Class::Protocol, NO_REDIS),
        _ => {}
    }
    let (code, text) = (e.code().unwrap_or_default(), e.detail().unwrap_or_default());
    let by_code = CODES.iter().find(|(word, ..)| code == *word || (code == "ERR" && raised(text, word)));
    let by_text = || TEXTS.iter().find(|(words, ..)| text.contains(words));
    by_code.or_else(by_text).map_or((Class::Protocol, ""), |&(_, class, advice)| (class, advice))
}

/// `… -READONLY You can't write …`, as 6.2 reports what a command in a script answered, or
/// `Error running script …: @user_script:7: WRONGTYPE Operation …`, what the script itself did.
fn raised(text: &str, word: &str) -> bool {
    let of_script = || text.strip_prefix("Error running script")?.rsplit_once("@user_script:")?.1.split_once(": ");
    let by_itself = of_script().is_some_and(|(_, said)| said.split(' ').next() == Some(word));
    by_itself || text.split([' ', ':']).any(|part| part.strip_prefix('-') == Some(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As servers send them; the code is the first word.
    fn class_of(answer: &str) -> Class {
        let (code, detail) = answer.split_once(' ').unwrap_or((answer, ""));
        sort(&redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))).0
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
            (
                "ERR Error running script (call to f_12): @user_script:7: WRONGTYPE Operation against a key",
                Class::WrongType,
            ),
            ("ERR DB index is out of range", Class::Setup),
            ("ERR SELECT is not allowed in cluster mode", Class::Setup),
            ("ERR Write commands not allowed after non deterministic commands", Class::Setup),
            ("DENIED Redis is running in protected mode because protected mode is enabled", Class::Denied),
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
}
