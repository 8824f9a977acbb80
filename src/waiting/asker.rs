//! One lock as the acquisition sees it: what it is about, what it knows, how it ends.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::backoff::Backoff;
use super::gate::{Gate, Tenure, Turn};
use super::interrupt::Interrupt;
use super::local::{LocalKey, Shape};
use super::seat::{Left, Seat};
use crate::clock::Moment;
use crate::keeping::{Bystander, Enrolment, Errand, Grant, Held, Keeper, OnLost};
use crate::nodes::NotAfter;
use crate::server::Failure;

/// How a lock waits, and who is told of its loss: what does not shape a lease.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) unreachable_after: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) interrupt: Option<Interrupt>,
    pub(crate) on_lost: Option<OnLost>,
}

/// One lock, as the loop sees it.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) keeper: &'a Keeper,
    pub(crate) local: &'a LocalKey,
    pub(crate) gate: &'a Arc<Gate<Left>>,
    pub(crate) shape: &'a Shape,
    pub(crate) manner: &'a Manner,
}

/// The lock is held.
pub(crate) struct Won {
    pub(crate) held: Arc<Held>,
    /// The place in the gate; a hold that was resumed, or won by a single attempt past a waiting head,
    /// has none.
    pub(crate) turn: Option<Turn<Left>>,
}

/// The lease was over before there could be a guard.
pub(crate) struct TooLate {
    pub(crate) held: Arc<Held>,
    pub(crate) turn: Option<Turn<Left>>,
}

/// Why there is no lock.
#[derive(Debug)]
pub(crate) enum Refusal {
    Taken,
    Interrupted,
    Failed(Failure),
    /// No useful answer for so long.
    Silent(Duration, Failure),
}

impl Asker<'_> {
    /// A new acquisition, which begins with `try`.
    pub(super) fn fresh_seat(self) -> Seat {
        let pushes = self.shape.in_turn && self.local.listener.can_push();
        Seat::new(self.keeper.tokens.token(self.shape.label.as_deref(), pushes), self.manner.backoff)
    }

    /// A new acquisition; one that is likely to have to queue does so at once.
    pub(super) fn new_seat(self) -> Seat {
        let mut seat = self.fresh_seat();
        let listener = &self.local.listener;
        if self.shape.in_turn && self.local.expects_queue() && listener.is_heard() && listener.can_queue() {
            seat.place = Some(super::head::enter(self.local, &seat.token, self.manner.backoff));
        }
        seat
    }

    /// The grant becomes a hold, if it is still good.
    pub(super) fn hold(
        self,
        token: String,
        grant: &Grant,
        enrolled: Option<Arc<dyn Enrolment>>,
        turn: Option<Turn<Left>>,
    ) -> Result<Won, TooLate> {
        let name = (token, enrolled);
        let (terms, on_lost) = (self.shape.terms, self.manner.on_lost.as_ref());
        let held = self.keeper.hold(&self.local.key, name, terms, grant, self.bystander(), on_lost);
        self.keep(held, turn)
    }

    /// The lease that another thread passed on becomes a hold, if it is still good.
    pub(super) fn take_over(self, passed: &Held, turn: Option<Turn<Left>>) -> Result<Won, TooLate> {
        self.keep(self.keeper.hold_passed(passed, self.bystander(), self.manner.on_lost.as_ref()), turn)
    }

    /// The last look at the clock before a guard.
    fn keep(self, held: Arc<Held>, turn: Option<Turn<Left>>) -> Result<Won, TooLate> {
        if !held.is_valid() {
            return Err(TooLate { held, turn });
        }
        self.local.held_by(&held);
        self.keeper.keep(&held);
        if let Some(turn) = &turn {
            turn.hold(Arc::clone(&held) as Arc<dyn Tenure>);
        }
        Ok(Won { held, turn })
    }

    fn bystander(self) -> Weak<dyn Bystander> {
        let gate: Arc<dyn Bystander> = Arc::clone(self.gate) as _;
        Arc::downgrade(&gate)
    }

    pub(super) fn is_interrupted(self) -> bool {
        self.manner.interrupt.as_ref().is_some_and(Interrupt::is_interrupted)
    }

    /// At the deadline of a waiter that began at `start`: what the last attempt for the key said,
    /// whichever thread made it.
    pub(super) fn verdict(self, start: Moment) -> Refusal {
        self.local.news.failure_since(start).map_or(Refusal::Taken, Refusal::Failed)
    }

    /// When a waiter that began at `start` gives up, as things stand, and for what failure.
    pub(super) fn patience_ends(self, start: Moment) -> (Moment, Option<Failure>) {
        match self.local.news.silent_since(start) {
            Some((since, failure)) => (since.after(self.manner.unreachable_after), Some(failure)),
            None => (Moment::NEVER, None),
        }
    }

    /// How long there was no useful answer, if that is too long.
    pub(super) fn waited_out(self, start: Moment) -> Option<Duration> {
        let now = Moment::now();
        let (since, _) = self.local.news.silent_since(start)?;
        (since.after(self.manner.unreachable_after) <= now).then(|| since.until(now))
    }

    /// Takes an acquisition back that ended without a guard, if there can be anything: a lock that was
    /// granted too late (`until` is `NotAfter::NONE`), or an attempt that may still be executed.
    pub(super) fn take_back(self, token: &str, until: NotAfter) {
        let terms = self.shape.terms;
        let io = self.keeper.io(&terms);
        self.keeper.watchdog.run(Errand::leave(&self.local.key, token, until, terms.ttl, io));
    }
}

impl Bystander for Gate<Left> {
    fn lost(&self) {
        self.look_again();
    }
}

impl Tenure for Held {
    fn until(&self) -> Moment {
        self.valid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeping::{Renew, Terms};
    use crate::nodes::Single;
    use crate::server::{Address, Pool};
    use crate::waiting::{Listener, Locals};

    const IO: Duration = Duration::from_secs(1);

    /// Keeps what was logged.
    struct Log(parking_lot::Mutex<Vec<String>>);

    impl log::Log for Log {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            metadata.level() == log::Level::Warn
        }

        fn log(&self, record: &log::Record<'_>) {
            self.0.lock().push(record.args().to_string());
        }

        fn flush(&self) {}
    }

    #[test]
    fn a_long_wait_behind_this_very_process_is_logged_once() {
        static LOG: Log = Log(parking_lot::Mutex::new(Vec::new()));
        log::set_logger(&LOG).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let info = redis::IntoConnectionInfo::into_connection_info("redis://127.0.0.1:1/").unwrap();
        let keeper = Keeper::new("test", Arc::new(Single::new(Pool::new(Address::new(info, "test"), 1))), IO);
        let ttl = Duration::from_secs(60);
        let shape = Shape { terms: Terms { ttl, renew: Renew::Never, passes: 0 }, label: None, in_turn: true };
        let local = Arc::new(Locals::new(Listener::of(&keeper))).key("long");
        let manner = Manner { unreachable_after: ttl, backoff: Backoff::new(), interrupt: None, on_lost: None };
        let gate = local.gate(&shape);
        let asker = Asker { keeper: &keeper, local: &local, gate: &gate, shape: &shape, manner: &manner };
        let grant = Grant::answered(17, Moment::now(), ttl, None);
        let _won = asker.hold("mine".to_owned(), &grant, None, gate.try_enter().ok()).ok().unwrap();
        let refused = asker.wait(Some(Moment::now().after(Duration::from_millis(2500)))).err();
        assert!(matches!(refused, Some(Refusal::Taken)), "{refused:?}");
        let lines = LOG.0.lock().iter().filter(|line| line.contains("lock \"long\" is waited for")).count();
        assert_eq!(lines, 1);
    }

    #[test]
    fn a_grant_whose_lease_is_over_becomes_no_hold() {
        // Nothing is asked of this address: a hold is made of what is known.
        let info = redis::IntoConnectionInfo::into_connection_info("redis://127.0.0.1:1/").unwrap();
        let pool = Pool::new(Address::new(info, "test"), 1);
        let keeper = Keeper::new("test", Arc::new(Single::new(pool)), Duration::from_secs(1));
        let ttl = Duration::from_secs(1);
        let shape = Shape { terms: Terms { ttl, renew: Renew::Never, passes: 0 }, label: None, in_turn: true };
        let local = Arc::new(Locals::new(Listener::of(&keeper))).key("k");
        let manner = Manner { unreachable_after: ttl, backoff: Backoff::new(), interrupt: None, on_lost: None };
        let gate = local.gate(&shape);
        let asker = Asker { keeper: &keeper, local: &local, gate: &gate, shape: &shape, manner: &manner };
        let grant = |fence, sent| Grant::answered(fence, sent, ttl, None);
        assert!(asker.hold("good".to_owned(), &grant(17, Moment::now()), None, None).is_ok());
        assert_eq!(local.hint(), 17);
        let long_ago = Moment::from_bits(Moment::now().to_bits() - 990_000_000);
        let over = asker.hold("over".to_owned(), &grant(34, long_ago), None, None);
        assert!(over.is_err_and(|over| !over.held.is_valid()));
        assert_eq!(local.hint(), 17, "no guard had it");
    }
}
