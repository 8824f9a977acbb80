//! A clock that stands until the model turns it. All of shuttle's threads share one system thread.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use crate::sync::Thread;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(u64);

std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
    /// Who sleeps, and would be woken by time going on.
    static SLEEPERS: RefCell<Vec<Thread>> = const { RefCell::new(Vec::new()) };
}

impl Moment {
    pub(crate) const PAST: Moment = Moment(0);
    pub(crate) const NEVER: Moment = Moment(u64::MAX);

    pub(crate) fn now() -> Moment {
        Moment(NOW.get())
    }

    /// Ticks are of a second.
    pub(crate) fn until(self, later: Moment) -> Duration {
        Duration::from_secs(later.0.saturating_sub(self.0))
    }

    pub(crate) const fn at(tick: u64) -> Moment {
        Moment(tick)
    }
}

/// At the start of every execution.
pub(crate) fn reset() {
    NOW.set(1);
    SLEEPERS.take();
}

pub(crate) fn sleeps(thread: Thread) {
    SLEEPERS.with_borrow_mut(|sleepers| sleepers.push(thread));
}

/// It is `tick` now; whoever sleeps looks at the clock.
pub(crate) fn turn_to(tick: u64) {
    NOW.set(tick);
    SLEEPERS.take().iter().for_each(Thread::unpark);
}
