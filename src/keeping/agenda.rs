//! What a background thread has to do, ordered by when it is due.
//!
//! The thread starts with the first entry and sleeps until the next one is due, or an earlier one is
//! entered. It ends when its client is gone and nothing is left. No job is done here, and none under
//! the mutex.

use std::{collections::BTreeMap, sync::Arc};

use log::warn;
use parking_lot::{Condvar, Mutex};

use crate::clock::Moment;
use crate::sync::LONGEST_SLEEP;

/// When a job is due, and an id that makes it unique.
pub(crate) type Slot = (Moment, u64);
pub(crate) type Jobs<J> = BTreeMap<Slot, J>;

pub(crate) struct Agenda<J> {
    /// What the thread is called.
    name: String,
    /// Guards what there is to do and when the thread looks next.
    state: Mutex<State<J>>,
    /// With `state`: something is due before the thread would look, or the client is gone.
    sooner: Condvar,
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
        Agenda { name, state: Mutex::new(state), sooner: Condvar::new() }
    }

    /// Enters a job. The first one starts the thread, which does `work`.
    pub(crate) fn enter(self: &Arc<Self>, slot: Slot, job: J, work: impl FnOnce() -> Work) {
        let mut state = self.state.lock();
        state.jobs.insert(slot, job);
        if !state.running {
            state.running = self.start(work());
        } else if slot.0 < state.looks {
            // Wakes `next`.
            state.looks = slot.0;
            self.sooner.notify_one();
        }
    }

    /// Changes what there is to do; `true` from `change` has the thread look at once.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Jobs<J>) -> bool) {
        let mut state = self.state.lock();
        if change(&mut state.jobs) {
            self.sooner.notify_one();
        }
    }

    /// The client is gone: the thread ends when it has nothing left to do.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.sooner.notify_one();
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
                self.sooner.wait(&mut state);
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
            self.sooner.wait_for(&mut state, sleep);
        }
    }

    fn start(&self, work: Work) -> bool {
        match std::thread::Builder::new().name(self.name.clone()).spawn(work) {
            Ok(_) => true,
            Err(e) => {
                warn!("the thread {:?} cannot be started, locks end by their ttl: {e}", self.name);
                false
            }
        }
    }
}

/// All that the thread does.
pub(crate) type Work = Box<dyn FnOnce() + Send>;
