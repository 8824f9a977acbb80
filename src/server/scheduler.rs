//! The one thread on which all pools of the process make their slots and close idle connections.
//!
//! A plain r2d2 pool starts three threads, and a dropped scheduler lives on for half a minute: so there
//! is one, for the life of the process. It never blocks, since slots connect elsewhere. A forked child
//! inherits its memory and not its thread, and gets another.

use std::{mem, sync::Arc, time::Duration};

use parking_lot::Mutex;
use scheduled_thread_pool::ScheduledThreadPool;

/// Guards the scheduler, and the process that it belongs to.
static SCHEDULER: Mutex<Option<(u32, Arc<ScheduledThreadPool>)>> = Mutex::new(None);

/// The scheduler of this process.
pub(crate) fn scheduler() -> Arc<ScheduledThreadPool> {
    // A child may be forked while a thread that it does not get holds the mutex.
    let Some(mut slot) = SCHEDULER.try_lock_for(Duration::from_millis(100)) else { return start() };
    match &*slot {
        Some((pid, scheduler)) if *pid == std::process::id() => Arc::clone(scheduler),
        _ => {
            let scheduler = start();
            // What was inherited is not ended: nobody would answer.
            mem::forget(slot.replace((std::process::id(), Arc::clone(&scheduler))));
            scheduler
        }
    }
}

fn start() -> Arc<ScheduledThreadPool> {
    Arc::new(ScheduledThreadPool::builder().num_threads(1).thread_name_pattern("distlock-pool").build())
}
