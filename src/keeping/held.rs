//! A hold: the private core of every guard.
//!
//! It knows until when the lease is good by the local clock, and why it ended. The guard owns it and
//! releases it exactly once; the watchdog renews it; both may look at any time. A lease that is over
//! never comes back: an answer that arrives after its end does not revive it.

use std::{
    sync::{
        Arc, Weak,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use super::lease::{self, Renew, Terms};
use super::lost::{Lost, LostReason, OnLost};
use super::notifier::Notifier;
use crate::clock::Moment;
use crate::monitor::Monitor;
use crate::nodes::{Key, NotAfter, Order};
use crate::sync::LONGEST_SLEEP;

/// Who wants to know at once that a hold is lost: the threads that wait behind it.
pub(crate) trait Bystander: Send + Sync {
    fn lost(&self);
}

pub(crate) struct Held {
    pub(crate) key: Arc<Key>,
    pub(crate) token: String,
    pub(crate) fence: u64,
    pub(crate) terms: Terms,
    /// How long a call for it may take.
    pub(crate) io: Duration,
    /// Unique in the client: its place in the watchdog's agenda.
    pub(crate) id: u64,
    /// Where a copy of an attempt may still be executed: what is to be taken back after the release.
    pub(crate) ghost: Option<NotAfter>,
    pub(crate) enrolled: Option<Arc<dyn Enrolment>>,
    /// When it was acquired, and when its last lease ends at the latest.
    start: Moment,
    end: Moment,
    /// When the lease was taken from Redis, and how often it was passed on since.
    taken: Moment,
    passes: u8,
    /// Until when the lease is good; the bits of a `Moment`. Written under `state` only.
    valid: AtomicU64,
    /// Guards every change of the lease, so that losing, renewing and closing have an order.
    state: Monitor<State>,
    /// When the watchdog looks at it next; written under the agenda's mutex once it is entered.
    due: AtomicU64,
    /// Renewals in a row without an answer.
    failures: AtomicU32,
    bystander: Weak<dyn Bystander>,
    told: Option<Told>,
}

/// A user who wants to be told of a loss.
pub(crate) struct Told {
    pub(crate) on_lost: OnLost,
    pub(crate) notifier: Arc<Notifier>,
    /// When the notifier looks at it next; written under its agenda's mutex once it is entered.
    looked_at: AtomicU64,
}

impl Told {
    pub(crate) fn new(on_lost: OnLost, notifier: Arc<Notifier>) -> Told {
        Told { on_lost, notifier, looked_at: AtomicU64::new(0) }
    }

    pub(crate) fn looked_at(&self) -> Moment {
        Moment::from_bits(self.looked_at.load(Relaxed))
    }

    pub(crate) fn set_looked_at(&self, next: Moment) {
        self.looked_at.store(next.to_bits(), Relaxed);
    }
}

#[derive(Default)]
struct State {
    loss: Option<LostReason>,
    /// The guard is gone: neither renewed nor lost any more.
    closed: bool,
}

/// While it lives, messages for its token are known to be somebody's.
pub(crate) trait Enrolment: Send + Sync {}

/// Where a hold is kept, and who wants to know of its loss.
pub(crate) struct Place {
    pub(crate) id: u64,
    pub(crate) io: Duration,
    pub(crate) bystander: Weak<dyn Bystander>,
    pub(crate) told: Option<Told>,
}

/// A lease is passed on for no longer than this since it was taken from Redis: other processes wait, too.
const LONGEST_PASSING: Duration = Duration::from_millis(50);

/// What a hold begins with.
pub(crate) struct Grant {
    pub(crate) fence: u64,
    /// Its lease of `ttl` counts from here.
    pub(crate) sent: Moment,
    pub(crate) ttl: Duration,
    pub(crate) ghost: Option<NotAfter>,
    pub(crate) acquired: Moment,
    /// When to renew it first, if not by its terms.
    pub(crate) due: Option<Moment>,
}

impl Grant {
    /// By the answer to a call that was sent then.
    pub(crate) fn answered(fence: u64, sent: Moment, ttl: Duration, ghost: Option<NotAfter>) -> Grant {
        Grant { fence, sent, ttl, ghost, acquired: sent, due: None }
    }
}

impl Held {
    pub(crate) fn new(
        key: &Arc<Key>,
        (token, enrolled): (String, Option<Arc<dyn Enrolment>>),
        terms: Terms,
        grant: &Grant,
        place: Place,
    ) -> Arc<Held> {
        let end = terms.end(grant.acquired);
        let valid = lease::valid_until(grant.sent, grant.ttl).min(end);
        let due = grant.due.or_else(|| terms.due(grant.sent)).unwrap_or(Moment::NEVER);
        Arc::new(Held {
            key: Arc::clone(key),
            token,
            fence: grant.fence,
            terms,
            io: place.io,
            id: place.id,
            ghost: grant.ghost,
            enrolled,
            start: grant.acquired,
            end,
            taken: grant.acquired,
            passes: 0,
            valid: AtomicU64::new(valid.to_bits()),
            state: Monitor::default(),
            due: AtomicU64::new(due.to_bits()),
            failures: AtomicU32::new(0),
            bystander: place.bystander,
            told: place.told,
        })
    }

    /// The hold of the next thread, which the lease is passed on to: as good as it is here, and with the
    /// next fence of its block.
    pub(crate) fn passed(&self, place: Place) -> Arc<Held> {
        let start = Moment::now();
        Arc::new(Held {
            key: Arc::clone(&self.key),
            token: self.token.clone(),
            fence: self.fence + 1,
            terms: self.terms,
            io: place.io,
            id: place.id,
            ghost: self.ghost,
            enrolled: self.enrolled.clone(),
            start,
            end: self.terms.end(start),
            taken: self.taken,
            passes: self.passes + 1,
            valid: AtomicU64::new(self.valid().to_bits()),
            state: Monitor::default(),
            due: AtomicU64::new(self.due().to_bits()),
            failures: AtomicU32::new(0),
            bystander: place.bystander,
            told: place.told,
        })
    }

    /// Is the lease good for another thread: is enough of it left, and is it not the others' turn? (One
    /// that is not renewed is never passed on: whoever asks for it counts on a whole one.)
    pub(crate) fn may_be_passed(&self) -> bool {
        let now = Moment::now();
        self.terms.renew != Renew::Never
            && self.passes < self.terms.passes
            && now < self.taken.after(LONGEST_PASSING)
            && now.until(self.valid()) >= self.terms.least_passed()
    }

    /// The guard goes and the lease stays: neither renewed nor lost here any more. `false` if it is lost.
    pub(crate) fn close_good(&self) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.loss.is_some() || !self.is_valid() {
            return false;
        }
        state.closed = true;
        true
    }

    /// When it was acquired.
    pub(crate) fn start(&self) -> Moment {
        self.start
    }

    /// Until when the lease is good by the local clock; `PAST` if it is lost.
    pub(crate) fn valid(&self) -> Moment {
        Moment::from_bits(self.valid.load(Acquire))
    }

    pub(crate) fn is_valid(&self) -> bool {
        Moment::now() < self.valid()
    }

    /// Why it is lost, if it is.
    pub(crate) fn loss(&self) -> Option<LostReason> {
        let state = self.state.lock();
        state.loss.or_else(|| (!self.is_valid()).then(|| self.how_it_expired()))
    }

    fn how_it_expired(&self) -> LostReason {
        let reached = self.valid();
        // The last lease of an `AtMost` ends its drift before the limit.
        let longest = self.end != Moment::NEVER && reached.after(2 * lease::drift(self.terms.ttl)) >= self.end;
        if longest { LostReason::HeldTooLong } else { LostReason::Expired }
    }

    /// Blocks until the hold is lost or `deadline`; is it lost?
    pub(crate) fn wait_lost(&self, deadline: Moment) -> bool {
        let mut state = self.state.lock();
        loop {
            let now = Moment::now();
            if now >= self.valid() {
                return true;
            }
            if now >= deadline {
                return false;
            }
            // The watchdog signals a loss; that the lease ran out, the clock alone says.
            let wake = now.until(deadline.min(self.valid())).min(LONGEST_SLEEP);
            state = self.state.wait_for(state, wake);
        }
    }

    /// Takes note of a renewal that was sent at `sent`; `false` if the lease was over before its answer.
    pub(crate) fn renewed(&self, sent: Moment, ttl: Duration) -> bool {
        let _state = self.state.lock();
        self.failures.store(0, Relaxed);
        if !self.is_valid() {
            return false;
        }
        let valid = lease::valid_until(sent, ttl).max(self.valid());
        self.valid.store(valid.to_bits(), Release);
        true
    }

    /// The hold is lost; `false` if that was known, or nobody holds it any more.
    pub(crate) fn lose(&self, loss: Option<LostReason>) -> bool {
        {
            let mut state = self.state.lock();
            if state.closed || state.loss.is_some() {
                return false;
            }
            state.loss = Some(loss.unwrap_or_else(|| self.how_it_expired()));
            self.valid.store(Moment::PAST.to_bits(), Release);
            self.state.call_all();
        }
        // Outside of our own mutex: the others have theirs.
        if let Some(bystander) = self.bystander.upgrade() {
            bystander.lost();
        }
        if let Some(told) = &self.told {
            told.notifier.hurry(self.id, told);
        }
        true
    }

    /// Who wants to be told of its loss.
    pub(crate) fn told(&self) -> Option<&Told> {
        self.told.as_ref()
    }

    /// What the user is told, if the hold was found to be lost while it had a guard.
    pub(crate) fn what_was_lost(&self) -> Option<Lost> {
        let reason = self.state.lock().loss?;
        Some(Lost { key: Arc::clone(&self.key.text), fence: self.fence, reason })
    }

    /// The guard goes: from here on the hold is neither renewed nor lost.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    pub(crate) fn due(&self) -> Moment {
        Moment::from_bits(self.due.load(Relaxed))
    }

    pub(crate) fn set_due(&self, due: Moment) {
        self.due.store(due.to_bits(), Relaxed);
    }

    pub(crate) fn renewal(&self, ttl: Duration) -> Order<'_> {
        Order::Renew { key: &self.key, token: &self.token, ttl: lease::server_millis(ttl), fence: self.fence }
    }

    /// The ttl of a renewal that is sent now; `None` if the lease reaches as far as it may.
    pub(crate) fn next_ttl(&self, now: Moment) -> Option<Duration> {
        self.terms.next_ttl(now, self.valid(), self.end)
    }

    /// How far the lease may still reach.
    pub(crate) fn longest(&self, now: Moment) -> Duration {
        now.until(self.end)
    }

    /// When to try a renewal again that had no answer.
    pub(crate) fn retry_at(&self, now: Moment) -> Moment {
        let failures = self.failures.fetch_add(1, Relaxed);
        now.after(self.terms.retry_pause(failures)).min(self.valid())
    }
}

#[cfg(feature = "testing")]
impl crate::nodes::Lapse for Held {
    fn lapse(&self) {
        self.lose(Some(LostReason::Expired));
    }
}
