//! The one thread on which all pools of the process make their slots and close idle connections.
//!
//! A plain r2d2 pool starts three threads, and a dropped scheduler lives on for half a minute: so there
//! is one, for the life of the process. It never blocks on I/O, since slots connect elsewhere. A forked
//! child inherits its memory and not its thread, and gets another.
//!
//! Between its jobs the scheduler sleeps on a condition of parking_lot, which a forked child must not
//! inherit ([`crate::monitor`] says why). So it always has a job: one that sleeps on a channel, lets the
//! others run when it is called, and comes again.

use std::{
    mem,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use parking_lot::Mutex;
use scheduled_thread_pool::ScheduledThreadPool;

/// Guards the scheduler, and the process that it belongs to.
static SCHEDULER: Mutex<Option<(u32, Arc<Scheduler>)>> = Mutex::new(None);

/// Jobs run so long after they are due at most, where nobody calls.
const LATE: Duration = Duration::from_secs(10);

pub(crate) struct Scheduler {
    jobs: Arc<ScheduledThreadPool>,
    calls: SyncSender<()>,
}

/// The scheduler of this process.
pub(crate) fn scheduler() -> Arc<Scheduler> {
    // A child may be forked while a thread that it does not get holds the mutex.
    let Some(mut slot) = SCHEDULER.try_lock_for(Duration::from_millis(100)) else { return Scheduler::start() };
    match &*slot {
        Some((pid, scheduler)) if *pid == std::process::id() => Arc::clone(scheduler),
        _ => {
            let scheduler = Scheduler::start();
            // What was inherited is not ended: nobody would answer.
            mem::forget(slot.replace((std::process::id(), Arc::clone(&scheduler))));
            scheduler
        }
    }
}

impl Scheduler {
    fn start() -> Arc<Scheduler> {
        let jobs = ScheduledThreadPool::builder().num_threads(1).thread_name_pattern("distlock-pool").build();
        // One call is enough for all jobs that were entered before it is heard.
        let (calls, called) = sync_channel(1);
        jobs.execute_with_dynamic_delay(Duration::ZERO, move || sleep(&called));
        Arc::new(Scheduler { jobs: Arc::new(jobs), calls })
    }

    /// For a pool, which enters its jobs by itself: [`run_due`](Self::run_due) has them done.
    pub(crate) fn jobs(&self) -> Arc<ScheduledThreadPool> {
        Arc::clone(&self.jobs)
    }

    /// Has all that is due done now.
    pub(crate) fn run_due(&self) {
        // Where there is a call already, it is heard after what was entered by now.
        let _ = self.calls.try_send(());
    }

    /// Runs `job` in `delay`, or up to [`LATE`] later.
    pub(crate) fn run_in(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        self.jobs.execute_after(delay, job);
    }
}

/// Sleeps until somebody calls. It comes again behind all jobs that are due, or not at all if the scheduler
/// is gone.
fn sleep(called: &Receiver<()>) -> Option<Duration> {
    match called.recv_timeout(LATE) {
        Ok(()) | Err(RecvTimeoutError::Timeout) => Some(Duration::ZERO),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}
