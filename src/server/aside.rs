//! Calls into the system that have no time limit: they run aside, on a thread, and whoever needs the
//! outcome waits no longer than it may.
//!
//! The system's resolver has limits of its own, far beyond ours, and connecting to a unix socket whose
//! queue is full has none. One call runs at a time for an address, so that a system which hangs costs
//! one thread, not one a caller.

use std::{
    fmt, io,
    sync::{Arc, MutexGuard},
};

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::monitor::Monitor;
use crate::sync::LONGEST_SLEEP;

#[derive(Clone, Default)]
pub(crate) struct Aside(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Is a call under way? It is called when one has ended.
    busy: Monitor<bool>,
}

/// Marks the end of a call, however it ends.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        *self.0.busy.lock() = false;
        self.0.busy.call_all();
    }
}

impl Aside {
    /// The outcome of `call`, or a timeout at `until`. What comes later is dropped where it comes.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        until: Moment,
        call: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let mut busy = self.0.busy.lock();
        while *busy {
            busy = self.wait(busy, until)?;
        }
        let outcome = Arc::new(Mutex::new(None));
        let (ending, theirs) = (Ending(Arc::clone(&self.0)), Arc::clone(&outcome));
        let thread = std::thread::Builder::new().name("distlock-aside".to_owned());
        *busy = true;
        drop(busy);
        thread.spawn(move || {
            let _ending = ending;
            let found = call();
            *theirs.lock() = Some(found);
        })?;
        let mut busy = self.0.busy.lock();
        loop {
            if let Some(found) = outcome.lock().take() {
                return found;
            }
            if Arc::strong_count(&outcome) == 1 {
                return Err(io::Error::other("the call panicked"));
            }
            busy = self.wait(busy, until)?;
        }
    }

    fn wait<'a>(&self, busy: MutexGuard<'a, bool>, until: Moment) -> io::Result<MutexGuard<'a, bool>> {
        let left = Moment::now().until(until);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(self.0.busy.wait_for(busy, left.min(LONGEST_SLEEP)))
    }
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aside")
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    fn soon() -> Moment {
        Moment::now().after(Duration::from_secs(20))
    }

    #[test]
    fn an_outcome_is_the_callers_own() {
        let aside = Aside::default();
        std::thread::scope(|scope| {
            for i in 0..20 {
                let aside = &aside;
                scope.spawn(move || assert_eq!(aside.run(soon(), move || Ok(i)).unwrap(), i));
            }
        });
    }

    #[test]
    fn a_call_that_takes_too_long_is_not_waited_for_and_neither_is_the_next() {
        let aside = Aside::default();
        let (go_on, wait) = mpsc::channel::<()>();
        let early = Moment::now().after(Duration::from_millis(20));
        let error = aside.run(early, move || Ok(wait.recv())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let early = Moment::now().after(Duration::from_millis(20));
        assert_eq!(aside.run(early, || Ok(())).unwrap_err().kind(), io::ErrorKind::TimedOut);
        go_on.send(()).unwrap();
        aside.run(soon(), || Ok(())).unwrap();
    }

    #[test]
    fn a_call_that_panics_is_an_error_and_the_next_one_runs() {
        let aside = Aside::default();
        let error = aside.run(soon(), || -> io::Result<()> { panic!("inside") }).unwrap_err();
        assert!(error.to_string().contains("panicked"));
        aside.run(soon(), || Ok(())).unwrap();
    }
}
