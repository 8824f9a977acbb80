//! Asks Sentinels where the master of a service is, each time that a connection is opened: so whoever
//! lost a connection, or dropped it because its server was no master any more, finds the new one.
//!
//! (The redis crate's Sentinel client has no time limits, and holds a mutex while it connects.)

use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;

use super::failure::{Class, Failure};
use super::handshake::Address;
use super::script::pack;
use super::sorting;
use super::wire::Wire;
use crate::clock::Moment;

pub(crate) struct Sentinels {
    service: String,
    /// Guards the order in which they are asked: the one that answered last comes first.
    all: Mutex<Vec<Address>>,
}

impl Sentinels {
    pub(crate) fn new(service: &str, all: Vec<Address>) -> Sentinels {
        Sentinels { service: service.to_owned(), all: Mutex::new(all) }
    }

    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    /// Host and port of the master, from the first Sentinel that knows it. One that is silent costs its
    /// share of the time, of which one is left for the master.
    pub(super) fn master(&self, until: Moment) -> Result<(String, u16), Failure> {
        let all = self.all.lock().clone();
        let mut failure = Failure::with_text(Class::Setup, "no Sentinel is known");
        for (i, sentinel) in all.iter().enumerate() {
            let shares = u32::try_from(all.len() - i + 1).unwrap_or(u32::MAX);
            let now = Moment::now();
            let share = (now.until(until) / shares).max(Duration::from_millis(1));
            match self.ask(sentinel, now.after(share)) {
                Ok(master) => {
                    if i > 0 {
                        self.prefer(sentinel);
                    }
                    return Ok(master);
                }
                // What a Sentinel says counts for more than that another says nothing.
                Err(other) if i == 0 || failure.class == Class::Unreachable => failure = other,
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// Other threads may have changed the order since.
    fn prefer(&self, sentinel: &Address) {
        let mut all = self.all.lock();
        if let Some(at) = all.iter().position(|other| other.place() == sentinel.place()) {
            all[..=at].rotate_right(1);
        }
    }

    fn ask(&self, sentinel: &Address, until: Moment) -> Result<(String, u16), Failure> {
        let limit = Moment::now().until(until);
        let failed = |e| sentinel.failed(e, limit);
        let mut wire = sentinel.open(until).map_err(failed)?;
        let auth = sentinel.auth();
        let question = pack::command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.service]);
        let request = [auth.as_slice(), &question].concat();
        wire.send(&request, Moment::now(), until).map_err(failed)?;
        if !auth.is_empty() {
            said(wire.receive(until).map_err(failed)?)?;
        }
        self.read(said(wire.receive(until).map_err(failed)?)?)
    }

    fn read(&self, answer: Value) -> Result<(String, u16), Failure> {
        if answer == Value::Nil {
            let text = format!("no master is called {:?} there", self.service);
            return Err(Failure::with_text(Class::Setup, &text).advising(sorting::NO_SERVICE));
        }
        let found: Option<(String, String)> = redis::from_redis_value(answer).ok();
        found.and_then(|(host, port)| Some((host, port.parse().ok()?))).ok_or_else(|| {
            Failure::with_text(Class::Protocol, "what it says of the master is no address")
                .advising(sorting::NO_SENTINEL)
        })
    }
}

fn said(answer: Value) -> Result<Value, Failure> {
    let Value::ServerError(e) = answer else { return Ok(answer) };
    let failure = Failure::from_server(e);
    // It does not know the word.
    if failure.class == Class::Protocol { Err(failure.advising(sorting::NO_SENTINEL)) } else { Err(failure) }
}

/// A Sentinel may say late what became of a master: the server itself is asked. Who may not ask finds out
/// by the answers.
pub(super) fn check_role(
    wire: &mut Wire,
    until: Moment,
    failed: impl Fn(redis::RedisError) -> Failure,
) -> Result<(), Failure> {
    wire.send(&pack::command(&["ROLE"]), Moment::now(), until).map_err(&failed)?;
    match wire.receive(until).map_err(&failed)? {
        Value::Array(role) if !is_master(&role) => {
            Err(Failure::with_text(Class::Role, "what the Sentinel calls the master is none, or none yet"))
        }
        _ => Ok(()),
    }
}

fn is_master(role: &[Value]) -> bool {
    role.first().and_then(pack::text_of) == Some("master")
}
