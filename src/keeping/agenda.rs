//! What a background thread has to do, ordered by when it is due.
//!
//! The thread starts with the first entry and sleeps until the next one is due, or an earlier one is
//! entered. It ends when its client is gone and nothing is left. No job is done here, and none is even
//! dropped under the mutex: with the last of a hold goes what its user gave it. A panic, of a logger or
//! of such a drop, does not end the thread.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use log::warn;

use crate::clock::Moment;
use crate::monitor::Monitor;
use crate::sync::LONGEST_SLEEP;

/// When a job is due, and an id that makes it unique.
pub(crate) type Slot = (Moment, u64);
pub(crate) type Jobs<J> = BTreeMap<Slot, J>;

pub(crate) struct Agenda<J> {
    /// What the thread is called.
    name: String,
    /// Guards what there is to do and when the thread looks next. It is called when something is due
    /// before it would look, or the client is gone.
    state: Monitor<State<J>>,
}

struct State<J> {
    jobs: Jobs<J>,
    /// When the thread looks at the agenda next; `PAST` while it works, `NEVER` while it has nothing.
    looks: Moment,
    running: bool,
    closed: bool,
}

impl<J: Send + 'static> Agenda<J> {
    pub(crate) fn new(name: &str) -> Agenda<J> {
        // A thread's name must not have a NUL.
        let name = name.replace('\0', " ");
        let state = State { jobs: Jobs::new(), looks: Moment::PAST, running: false, closed: false };
        Agenda { name, state: Monitor::new(state) }
    }

    /// Enters a job. The first one starts the thread, which does `work`.
    pub(crate) fn enter(self: &Arc<Self>, slot: Slot, job: J, work: impl FnOnce() -> Work) {
        let mut state = self.state.lock();
        state.jobs.insert(slot, job);
        if !state.running {
            state.running = true;
            drop(state);
            // It may be through with all that there is, and have said so, before we are back.
            if !self.start(work()) {
                self.state.lock().running = false;
            }
        } else if slot.0 < state.looks {
            // Wakes `next`.
            state.looks = slot.0;
            self.state.call_one();
        }
    }

    /// Changes what there is to do. Jobs that go must come out of `change`, to be dropped after it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Jobs<J>) -> T) -> T {
        change(&mut self.state.lock().jobs)
    }

    /// Has the thread look at the agenda now.
    pub(crate) fn look(&self) {
        self.state.call_one();
    }

    /// The client is gone: the thread ends when it has nothing left to do.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.state.call_one();
    }

    /// Waits until a job is due, and takes what `take` takes; `None` when the thread is to end.
    pub(crate) fn next<T>(&self, take: impl Fn(&mut Jobs<J>, Moment) -> T) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            let Some((&(due, _), _)) = state.jobs.first_key_value() else {
                if state.closed {
                    state.running = false;
                    return None;
                }
                state.looks = Moment::NEVER;
                state = self.state.wait(state);
                continue;
            };
            let now = Moment::now();
            if due <= now {
                state.looks = Moment::PAST;
                return Some(take(&mut state.jobs, now));
            }
            // A suspended machine does not count sleeps.
            let sleep = now.until(due).min(LONGEST_SLEEP);
            state.looks = now.after(sleep);
            state = self.state.wait_for(state, sleep);
        }
    }

    fn start(&self, work: Work) -> bool {
        let run = move || while !contained(&work) {};
        match std::thread::Builder::new().name(self.name.clone()).spawn(run) {
            Ok(_) => true,
            Err(e) => {
                contained(|| warn!("the thread {:?} cannot be started, locks end by their ttl: {e}", self.name));
                false
            }
        }
    }
}

/// All that the thread does, until there is nothing left to do.
pub(crate) type Work = Box<dyn Fn() + Send>;

/// Runs what may end in somebody else's code: a callback, a logger, a drop. `false`: it panicked, which
/// the panic hook has reported, and which must not stop what is done for all others.
pub(crate) fn contained(run: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_ok()
}
