//! The timestamp protocol on one server: a stamp is made from what is known of the clock, and whoever is
//! wrong about that is told, and asks again.
//!
//! A stamp does not say whose it is. So no call is sent twice, and none takes a stamp that it finds for
//! its own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::{Key, Stamped, Stamping, Stands, Unstamp};
use super::{LATE, Single, nonsense, read};
use crate::clock::Moment;
use crate::server::script::{Stamp, Verb};
use crate::server::{self, Class, Failure, Reply, server_clock};
use crate::stamp::StampClock;

impl Single {
    pub(super) fn write_stamp(
        &self,
        key: &Key,
        how: &Stamping,
        io: Duration,
    ) -> Result<Result<Stamped, Stands>, Failure> {
        let until = Moment::now().after(io);
        let mut told = None;
        for _ in 0..3 {
            let sent = Moment::now();
            let (server_now, not_after) = self.clocks(sent, io, told)?;
            let now = millis(how.clock, server_now);
            let stamp = how.unit.stamp(now, how.ttl, how.digits);
            let verb = Verb::Stamp {
                stamp,
                unit: how.unit.millis(),
                now: (how.clock == StampClock::Client).then_some(now),
                least: how.ttl - how.ttl / 2,
                expires: how.expires,
                not_after,
            };
            let reply = server::ask_once(&*self.link, &self.request(key, verb), until);
            let at = reply.at;
            let (clock, answer) = match read(reply.answer, Stamp::parse)? {
                Stamp::Held { left, clock } => {
                    (clock, Some(Ok(Stamped { stamp, sent, lasts: Duration::from_millis(left) })))
                }
                Stamp::Taken { left, clock } => {
                    (clock, Some(Err(Stands(u64::try_from(left).ok().map(Duration::from_millis)))))
                }
                Stamp::Late { clock } => (clock, None),
            };
            self.link.health().clock.set(clock, at);
            match answer {
                Some(answer) => return Ok(answer),
                // Our idea of its clock was wrong.
                None => told = Some(clock),
            }
        }
        Err(Failure::with_text(Class::Unavailable, LATE))
    }

    pub(super) fn delete_stamp(&self, key: &Key, how: &Stamping, stamp: u64, io: Duration) -> Result<Unstamp, Failure> {
        let now = (how.clock == StampClock::Client).then(|| millis(how.clock, 0));
        let verb = Verb::Unstamp { stamp, unit: how.unit.millis(), now };
        let Reply { answer, .. } = server::ask_once(&*self.link, &self.request(key, verb), Moment::now().after(io));
        read(answer, Unstamp::parse)
    }

    /// The server's time, and the one after which an attempt must not be executed.
    fn clocks(&self, now: Moment, io: Duration, told: Option<u64>) -> Result<(u64, u64), Failure> {
        let not_after = self.not_after(now, io)?;
        let not_after = told.map_or(not_after, |clock| not_after.max(server_clock::generous(clock, io)));
        let at = self.link.health().clock.at(now).ok_or_else(|| nonsense(&redis::Value::Nil))?;
        Ok((at, not_after))
    }
}

/// Milliseconds since 1970 by that clock.
fn millis(clock: StampClock, server_micros: u64) -> u64 {
    match clock {
        StampClock::Server => server_micros.div_ceil(1000),
        StampClock::Client => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
        }
    }
}
