//! Crate `rslock`: asynchronous, on tokio. One thread of it is measured on a runtime of one thread, without
//! a switch between threads; its tasks on a runtime of as many threads as there are processors.

use std::time::{Duration, Instant};

use rslock::{LockGuard, LockManager};
use tokio::runtime::{Builder, Runtime};

use super::TTL;
use crate::{support::url, worker::Contestant};

const KEY: &[u8] = b"peers:rslock";

struct Theirs {
    port: u16,
    runtime: Runtime,
    manager: LockManager,
    guard: Option<LockGuard>,
}

pub(super) fn open(port: u16) -> Box<dyn Contestant> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    Box::new(Theirs { port, runtime, manager: LockManager::new(vec![url(port)]), guard: None })
}

impl Contestant for Theirs {
    fn cycle(&mut self, time: Duration) -> (u64, Duration) {
        let start = Instant::now();
        (self.runtime.block_on(count(self.manager.clone(), start + time)), start.elapsed())
    }

    fn sections(&mut self, tasks: usize, time: Duration) -> Vec<u64> {
        let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
        // A connection belongs to the runtime that made it.
        let manager = LockManager::new(vec![url(self.port)]);
        let end = Instant::now() + time;
        let tasks: Vec<_> = (0..tasks).map(|_| runtime.spawn(count(manager.clone(), end))).collect();
        tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic")).collect()
    }

    fn take(&mut self) {
        self.guard = Some(self.runtime.block_on(take(&self.manager)));
    }

    fn give(&mut self) {
        self.runtime.block_on(self.guard.take().expect("held").release());
    }
}

async fn take(manager: &LockManager) -> LockGuard {
    manager.acquire(KEY, TTL).await.expect("a guard")
}

async fn count(manager: LockManager, end: Instant) -> u64 {
    let mut sections = 0;
    loop {
        take(&manager).await.release().await;
        if Instant::now() >= end {
            return sections;
        }
        sections += 1;
    }
}
