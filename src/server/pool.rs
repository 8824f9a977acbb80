//! Connections of our own: a bounded pool of slots, and one slot for the background.
//!
//! r2d2 is what it is good at here, a bounded pool: a check-out never waits for a connect, nothing is
//! tested, nothing is opened before it is used.

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use r2d2::PooledConnection;

use super::failure::{Class, Failure};
use super::handshake::Address;
use super::health::Health;
use super::link::{Link, Reply};
use super::scheduler::scheduler;
use super::script::Command;
use super::slot::{Exchanged, Slot};
use super::subscription::{self, Go, Heard};
use crate::clock::Moment;

/// Connections that nobody used for so long are closed.
const IDLE: Duration = Duration::from_secs(60);

/// A connection that was used so shortly before is taken to be open.
const FRESH: Duration = Duration::from_secs(1);

pub(crate) struct Pool {
    address: Address,
    slots: r2d2::Pool<Slots>,
    /// Guards the background's connection: renewals, and whatever nobody waits for.
    background: Mutex<Slot>,
    health: Health,
    /// The job that closes idle connections is scheduled.
    sweeping: AtomicBool,
    own: Weak<Pool>,
}

impl Pool {
    pub(crate) fn new(address: Address, max_connections: u32) -> Arc<Pool> {
        let scheduler = scheduler();
        // All slots at once, since an empty one costs next to nothing: no check-out makes any.
        let slots = r2d2::Pool::builder()
            .max_size(max_connections)
            .test_on_check_out(false)
            // r2d2's reaper jobs would never leave a shared scheduler.
            .idle_timeout(None)
            .max_lifetime(None)
            .thread_pool(scheduler.jobs())
            .build_unchecked(Slots);
        scheduler.run_due();
        Arc::new_cyclic(|own| Pool {
            address,
            slots,
            background: Mutex::default(),
            health: Health::default(),
            sweeping: AtomicBool::new(false),
            own: own.clone(),
        })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn check_out(&self, until: Moment) -> Result<PooledConnection<Slots>, Failure> {
        if let Some(slot) = self.slots.try_get() {
            return Ok(slot);
        }
        let start = Moment::now();
        // At least a moment: a cold pool makes its slots on the scheduler's thread.
        let time = start.until(until).max(Duration::from_millis(1));
        self.slots.get_timeout(time).map_err(|_| self.no_slot_since(start, time))
    }

    /// The pool is too small only if the server did answer meanwhile: a silent one fills every pool.
    fn no_slot_since(&self, start: Moment, waited: Duration) -> Failure {
        if self.health.has_answered_since(start) {
            return Failure::new(Class::Exhausted);
        }
        self.health.why_down().unwrap_or_else(|| Failure::timeout(waited))
    }

    fn exchange(&self, slot: &mut Slot, command: &Command, until: Moment) -> Exchanged {
        let exchanged = slot.exchange(&self.address, &self.health, command, until);
        self.health.note(&exchanged.answer, exchanged.at);
        if !exchanged.reused {
            self.sweep_later();
        }
        exchanged
    }

    /// Once more on a fresh connection, where the one that had waited turns out to be broken.
    fn exchange_all(&self, slot: &mut Slot, commands: &[Command], until: Moment) -> Vec<Reply> {
        let (mut answers, reused) = slot.exchange_all(&self.address, &self.health, commands, until);
        let stale = reused && matches!(answers.first(), Some(Err(failure)) if failure.is_disconnect());
        if stale {
            answers = slot.exchange_all(&self.address, &self.health, commands, until).0;
        }
        if !reused {
            self.sweep_later();
        }
        let at = Moment::now();
        answers
            .into_iter()
            .map(|answer| {
                self.health.note(&answer, at);
                let ghost = stale || matches!(&answer, Err(failure) if !failure.is_server_answer());
                Reply { answer, ghost, at }
            })
            .collect()
    }

    /// Sees to it that connections do not stay open for ever, while there are any.
    pub(super) fn sweep_later(&self) {
        if self.sweeping.swap(true, Relaxed) {
            return;
        }
        let own = self.own.clone();
        scheduler().run_in(IDLE / 2, move || {
            if let Some(pool) = own.upgrade() {
                pool.sweeping.store(false, Relaxed);
                if pool.close_idle(IDLE) {
                    pool.sweep_later();
                }
            }
        });
    }

    /// Closes connections that were not used for `idle`; is any open still?
    fn close_idle(&self, idle: Duration) -> bool {
        let since = Moment::from_bits(Moment::now().to_bits().saturating_sub(idle.as_nanos() as u64));
        let mut waiting: Vec<_> =
            (0..self.slots.state().idle_connections).map_while(|_| self.slots.try_get()).collect();
        waiting.iter_mut().for_each(|slot| slot.close_unused(since));
        let mut open =
            self.slots.state().connections as usize > waiting.len() || waiting.iter().any(|slot| slot.is_connected());
        // Given back in the order that keeps the one used last in front.
        while waiting.pop().is_some() {}
        if let Some(mut background) = self.background.try_lock() {
            background.close_unused(since);
            open |= background.is_connected();
        }
        open
    }
}

impl Link for Pool {
    fn call(&self, command: &Command, until: Moment) -> Reply {
        let mut slot = match self.check_out(until) {
            Ok(slot) => slot,
            Err(failure) => return unsent(failure),
        };
        let first = self.exchange(&mut slot, command, until);
        if !first.is_stale() {
            return first.into_reply();
        }
        let again = self.exchange(&mut slot, command, until).into_reply();
        again.after(first.into_reply())
    }

    fn call_together(&self, commands: &[Command], until: Moment) -> Vec<Reply> {
        match self.check_out(until) {
            Ok(mut slot) => self.exchange_all(&mut slot, commands, until),
            Err(failure) => commands.iter().map(|_| unsent(failure.clone())).collect(),
        }
    }

    fn call_once(&self, command: &Command, until: Moment) -> Reply {
        let mut slot = match self.check_out(until) {
            Ok(slot) => slot,
            Err(failure) => return unsent(failure),
        };
        if slot.has_waited_for(FRESH) {
            // If it was closed meanwhile it leaves the slot, and another is connected.
            self.exchange(&mut slot, &Command::plain(&["PING"]), until);
        }
        self.exchange(&mut slot, command, until).into_reply()
    }

    fn call_all(&self, commands: &[Command], until: Moment) -> Vec<Reply> {
        self.exchange_all(&mut self.background.lock(), commands, until)
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn is_one_address(&self) -> bool {
        true
    }

    fn can_listen(&self) -> bool {
        true
    }

    fn listen(&self, channel: &str, io: Duration, hear: &mut dyn FnMut(Heard<'_>) -> Go) -> Result<(), Failure> {
        let generation = self.health.generation();
        let connection = self.address.connect_redis(Moment::now().after(io))?;
        let mut moved = false;
        subscription::listen(connection, channel, io, &mut |heard| {
            // No message comes from a server that was found to be no master.
            moved |= self.address.is_watched() && self.health.generation() != generation;
            if moved { Go::Stop } else { hear(heard) }
        })?;
        if moved { Err(Failure::with_text(Class::Role, "its server is no master any more")) } else { Ok(()) }
    }
}

fn unsent(failure: Failure) -> Reply {
    Reply { answer: Err(failure), ghost: false, at: Moment::now() }
}

impl Exchanged {
    /// A connection that had waited in the pool was closed meanwhile: try once more on a fresh one.
    fn is_stale(&self) -> bool {
        self.reused && matches!(&self.answer, Err(failure) if failure.is_disconnect())
    }

    fn into_reply(self) -> Reply {
        let ghost = self.sent && matches!(&self.answer, Err(failure) if !failure.is_server_answer());
        Reply { answer: self.answer, ghost, at: self.at }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("address", &self.address)
            .field("slots", &self.slots.state())
            .finish_non_exhaustive()
    }
}

/// Makes slots, which cannot fail.
pub(super) struct Slots;

impl r2d2::ManageConnection for Slots {
    type Connection = Slot;
    type Error = Infallible;

    fn connect(&self) -> Result<Slot, Infallible> {
        Ok(Slot::default())
    }

    fn is_valid(&self, _: &mut Slot) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Slot) -> bool {
        false
    }
}

#[cfg(test)]
#[path = "../../tests/it/support/server.rs"]
#[allow(dead_code, reason = "the server of the integration tests, of which little is used here")]
mod real;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::plain;

    fn soon() -> Moment {
        Moment::now().after(Duration::from_secs(5))
    }

    fn pool(server: &real::Server) -> Arc<Pool> {
        let info = redis::IntoConnectionInfo::into_connection_info(server.url()).unwrap();
        Pool::new(Address::new(info, "idle"), 4)
    }

    fn connections(server: &real::Server) -> usize {
        server.ask::<String>(&["CLIENT", "LIST"]).matches("name=idle").count()
    }

    #[test]
    fn connections_that_nobody_used_are_closed_and_opened_again_when_needed() {
        let server = real::Server::start();
        let pool = pool(&server);
        let use_both = || {
            plain(&*pool, &["PING"], soon()).unwrap();
            pool.call_all(&[Command::plain(&["PING"])], soon())
                .into_iter()
                .for_each(|reply| drop(reply.answer.unwrap()));
        };
        for _ in 0..2 {
            use_both();
            assert_eq!(connections(&server), 2);
            assert!(pool.close_idle(Duration::from_secs(3600)), "they were used just now");
            assert_eq!(connections(&server), 2);
            assert!(!pool.close_idle(Duration::ZERO));
            let end = Moment::now().after(Duration::from_secs(5));
            while connections(&server) > 0 {
                assert!(Moment::now() < end, "the server does not see them closed");
            }
        }
    }

    #[test]
    fn a_batch_on_a_connection_that_was_closed_meanwhile_has_its_answers() {
        let server = real::Server::start();
        let pool = pool(&server);
        let echo = |word| Command::plain(&["ECHO", word]);
        for closed in [false, false, true, false, true] {
            if closed {
                let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
            let replies = pool.call_all(&[echo("a"), echo("b")], soon());
            let words =
                replies.iter().map(|reply| redis::from_redis_value_ref::<String>(reply.answer.as_ref().unwrap()));
            assert_eq!(words.collect::<Result<Vec<_>, _>>().unwrap(), ["a", "b"]);
            assert!(replies.iter().all(|reply| reply.ghost == closed), "what was sent before may be executed, too");
            assert!(!pool.health().is_down());
        }
    }

    #[test]
    fn a_batch_that_breaks_in_the_middle_has_a_failure_for_each_command_that_is_left() {
        let server = real::Server::start();
        let pool = pool(&server);
        let commands = [&["PING"][..], &["QUIT"], &["PING"], &["PING"]].map(Command::plain);
        let replies = pool.call_all(&commands, soon());
        let outcomes: Vec<_> = replies.iter().map(|reply| (reply.answer.is_ok(), reply.ghost)).collect();
        assert_eq!(outcomes, [(true, false), (true, false), (false, true), (false, true)]);
        assert!(pool.call_all(&commands[..1], soon())[0].answer.is_ok(), "on a connection of its own");
    }

    #[test]
    fn idle_connections_are_looked_after_while_any_is_open_pooled_or_not() {
        let server = real::Server::start();
        let hour = Duration::from_secs(3600);
        let pooled = pool(&server);
        assert!(!pooled.close_idle(hour));
        plain(&*pooled, &["PING"], soon()).unwrap();
        assert!(pooled.close_idle(hour));
        let background = pool(&server);
        background.call_all(&[Command::plain(&["PING"])], soon());
        assert!(background.close_idle(hour));
    }
}
