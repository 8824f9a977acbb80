//! The threads of one process that want one key: a FIFO queue, of which only the head asks Redis.
//!
//! | occupant | who | leaves when |
//! |---|---|---|
//! | nobody | | a thread enters |
//! | head | the thread that asks Redis | it gets the lock, or gives up |
//! | holder | the guard that it got | it is released, or its lease is over |
//!
//! The queue is served whenever the occupant leaves, under the one mutex, so that a place is never
//! free while somebody waits. A holder may also pass its lease on: then the next thread is in as the
//! holder that it is to become, and nobody asks Redis. A holder whose lease is over makes room by
//! itself: a guard that was leaked must not block its process for ever.
//!
//! Where sections take microseconds, it takes longer to wake a thread than to be done. So with a lease that
//! is passed on soon after it was got, the thread behind the next one is woken, too, and spins for a
//! moment: it is awake when its turn comes. Nothing rests on that; who spins in vain goes to sleep.
//!
//! There is no I/O here, and no Redis: what a head knows, or a holder passes on, and its successor
//! inherits is opaque. Nothing of it is dropped under the mutex: with a hold may go what its user
//! gave it.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use crate::clock::Moment;
use crate::sync::{AtomicU64, Mutex, SPIN, Thread, current, may_spin, park_until, spin_until};

/// A hold whose lease ends by the clock.
pub(crate) trait Tenure: Send + Sync {
    /// Until when it is good; past if it is lost.
    fn until(&self) -> Moment;
}

/// `S` is what one occupant leaves to the next.
pub(crate) struct Gate<S> {
    /// Guards who is in and who waits.
    state: Mutex<State<S>>,
    /// The ticket that was let in last, for those who spin.
    inside: AtomicU64,
    /// The ticket that is next and spins.
    ready: AtomicU64,
}

struct State<S> {
    next_ticket: u64,
    occupant: Option<Occupant>,
    queue: VecDeque<Waiter>,
    /// Left by a head that gave up, or a holder that passed on, for the next one.
    left: Option<S>,
    /// When the lease was got, or passed on the last time, and whether that was a moment after the time
    /// before.
    moved: Moment,
    brisk: bool,
}

struct Occupant {
    ticket: u64,
    /// Of a holder; a head has none.
    tenure: Option<Arc<dyn Tenure>>,
}

struct Waiter {
    ticket: u64,
    thread: Thread,
    /// Sleeps without a limit.
    boundless: bool,
}

/// The right to ask Redis, and then to hold. Dropped, it goes to the next thread.
pub(crate) struct Turn<S> {
    gate: Arc<Gate<S>>,
    ticket: u64,
}

/// A wait in the gate ended without a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Its limit was over.
    Limit,
    Interrupted,
}

/// What an occupied gate is occupied by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Busy {
    Asking,
    Held,
}

impl<S> Gate<S> {
    pub(crate) fn new() -> Gate<S> {
        let state = State {
            next_ticket: 0,
            occupant: None,
            queue: VecDeque::new(),
            left: None,
            moved: Moment::PAST,
            brisk: false,
        };
        Gate { state: Mutex::new(state), inside: AtomicU64::new(0), ready: AtomicU64::new(0) }
    }

    /// A turn if nobody is in and nobody waits.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Result<Turn<S>, Busy> {
        let _over;
        let mut state = self.state.lock();
        if state.occupant.is_some() {
            _over = state.evict(Moment::now());
            state.serve();
        }
        match &state.occupant {
            Some(occupant) => Err(if occupant.tenure.is_some() { Busy::Held } else { Busy::Asking }),
            None => {
                let ticket = state.ticket();
                state.occupant = Some(Occupant { ticket, tenure: None });
                Ok(self.turn(ticket))
            }
        }
    }

    /// Waits for a turn, behind all who came before. `limit` is asked at every look, with whether the
    /// gate is held; a turn that was given in the same moment wins over it and over the interrupt. `idle` is
    /// called before every look, outside of the mutex.
    pub(crate) fn enter(
        self: &Arc<Self>,
        limit: &dyn Fn(Option<Busy>) -> Moment,
        interrupted: &dyn Fn() -> bool,
        idle: &dyn Fn(),
    ) -> Result<Turn<S>, Refused> {
        let ticket = {
            let now = Moment::now();
            let mut state = self.state.lock();
            let ticket = state.ticket();
            state.queue.push_back(Waiter { ticket, thread: current(), boundless: false });
            if state.brisk && state.moved.until(now) < SPIN && state.queue.len() == 1 {
                self.ready.store(ticket, Ordering::Relaxed);
            }
            ticket
        };
        loop {
            idle();
            if self.spins_into(ticket) {
                return Ok(self.turn(ticket));
            }
            let wake = {
                let _over;
                let mut state = self.state.lock();
                let now = Moment::now();
                _over = state.evict(now);
                state.serve();
                if state.is_in(ticket) {
                    return Ok(self.turn(ticket));
                }
                let limit = limit(state.busy());
                if interrupted() {
                    state.abandon(ticket);
                    return Err(Refused::Interrupted);
                }
                if now >= limit {
                    state.abandon(ticket);
                    return Err(Refused::Limit);
                }
                state.note(ticket, limit == Moment::NEVER);
                limit.min(state.tenure_end())
            };
            // Woken by `serve`, `look_again` and `call`, by the interrupt; or at the end of the holder's lease.
            park_until(wake);
        }
    }

    /// One that is to be ready spins for a moment; did its turn come?
    fn spins_into(&self, ticket: u64) -> bool {
        if self.ready.compare_exchange(ticket, 0, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        let is_in = || self.inside.load(Ordering::Acquire) == ticket;
        spin_until(is_in);
        is_in()
    }

    /// The holder may be lost: serves the queue if so.
    pub(crate) fn look_again(&self) {
        let _over;
        let mut state = self.state.lock();
        _over = state.evict(Moment::now());
        state.serve();
    }

    /// There may be a limit now for those who sleep without one: each asks again.
    pub(crate) fn call(&self) {
        let state = self.state.lock();
        state.queue.iter().filter(|waiter| waiter.boundless).for_each(|waiter| waiter.thread.unpark());
    }

    /// How many threads wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().queue.len()
    }

    fn turn(self: &Arc<Self>, ticket: u64) -> Turn<S> {
        Turn { gate: Arc::clone(self), ticket }
    }
}

impl<S> State<S> {
    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn is_in(&self, ticket: u64) -> bool {
        self.occupant.as_ref().is_some_and(|occupant| occupant.ticket == ticket)
    }

    fn busy(&self) -> Option<Busy> {
        self.occupant.as_ref().map(|occupant| if occupant.tenure.is_some() { Busy::Held } else { Busy::Asking })
    }

    fn tenure_end(&self) -> Moment {
        let tenure = self.occupant.as_ref().and_then(|occupant| occupant.tenure.as_ref());
        tenure.map_or(Moment::NEVER, |tenure| tenure.until())
    }

    /// A holder whose lease is over is in no longer. (What is dropped of it is dropped by the caller.)
    #[must_use]
    fn evict(&mut self, now: Moment) -> Option<Occupant> {
        if self.tenure_end() <= now { self.occupant.take() } else { None }
    }

    /// Lets the first waiter in if nobody is.
    fn serve(&mut self) {
        if self.occupant.is_none() {
            self.admit(None);
        }
    }

    /// The first waiter is in from now on, as a holder if there is a tenure; its ticket.
    fn admit(&mut self, tenure: Option<Arc<dyn Tenure>>) -> Option<u64> {
        let next = self.queue.pop_front()?;
        self.occupant = Some(Occupant { ticket: next.ticket, tenure });
        next.thread.unpark();
        Some(next.ticket)
    }

    /// The lease is passed on: who is to be ready for the next time, if that is soon?
    fn moves(&mut self, now: Moment) -> Option<(u64, Thread)> {
        self.brisk = may_spin() && self.moved.until(now) < SPIN;
        self.moved = now;
        let next = self.queue.front().filter(|_| self.brisk)?;
        Some((next.ticket, next.thread.clone()))
    }

    fn note(&mut self, ticket: u64, boundless: bool) {
        if let Some(waiter) = self.queue.iter_mut().find(|waiter| waiter.ticket == ticket) {
            waiter.boundless = boundless;
        }
    }

    fn abandon(&mut self, ticket: u64) {
        self.queue.retain(|waiter| waiter.ticket != ticket);
    }

    #[must_use]
    fn leave(&mut self, ticket: u64) -> Option<Occupant> {
        // A holder that was evicted finds somebody else in, and changes nothing.
        let over = if self.is_in(ticket) { self.occupant.take() } else { None };
        self.serve();
        over
    }
}

impl<S> Turn<S> {
    /// What the last occupant left.
    pub(crate) fn inherit(&self) -> Option<S> {
        self.gate.state.lock().left.take()
    }

    /// The head has the lock: from now on its lease says how long it is in.
    pub(crate) fn hold(&self, tenure: Arc<dyn Tenure>) {
        let _over;
        let now = Moment::now();
        let mut state = self.gate.state.lock();
        if let Some(occupant) = state.occupant.as_mut().filter(|occupant| occupant.ticket == self.ticket) {
            _over = occupant.tenure.replace(tenure);
            state.moved = now;
        }
    }

    /// Does a thread wait behind this one?
    pub(crate) fn has_successor(&self) -> bool {
        self.gate.waiting() > 0
    }

    /// Gives up. The successor gets the seat as it is; without one it comes back.
    pub(crate) fn hand_over(self, seat: S) -> Result<(), S> {
        let _over;
        let mut state = self.gate.state.lock();
        if state.queue.is_empty() || !state.is_in(self.ticket) {
            return Err(seat);
        }
        state.left = Some(seat);
        _over = state.leave(self.ticket);
        Ok(())
    }

    /// The next thread is in as a holder from now on, and finds the lease; without one everything comes
    /// back.
    pub(crate) fn pass(self, lease: S, tenure: Arc<dyn Tenure>) -> Result<(), (Turn<S>, S)> {
        let _over;
        let now = Moment::now();
        let mut state = self.gate.state.lock();
        if state.queue.is_empty() || !state.is_in(self.ticket) {
            drop(state);
            return Err((self, lease));
        }
        state.left = Some(lease);
        _over = state.occupant.take();
        if let Some(next) = state.admit(Some(tenure)) {
            self.gate.inside.store(next, Ordering::Release);
        }
        let ready = state.moves(now);
        drop(state);
        if let Some((ticket, thread)) = ready {
            self.gate.ready.store(ticket, Ordering::Relaxed);
            thread.unpark();
        }
        Ok(())
    }
}

impl<S> Drop for Turn<S> {
    fn drop(&mut self) {
        let over = self.gate.state.lock().leave(self.ticket);
        drop(over);
    }
}
