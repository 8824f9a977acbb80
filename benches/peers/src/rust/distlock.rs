//! distlock: one client a process, a handle a thread; fences, renewal while held.

use distlock::{DistLock, DistLockGuard, LockClient};

use crate::{
    support::url,
    worker::{Blocking, Contestant, Lock},
};

struct Ours {
    lock: DistLock,
    guard: Option<DistLockGuard>,
}

pub(super) fn open(port: u16) -> Box<dyn Contestant> {
    let client = LockClient::open(url(port)).expect("an address");
    let lock = DistLock::new(&client, "peers:distlock");
    Box::new(Blocking::new(move || Ours { lock: lock.clone(), guard: None }))
}

impl Lock for Ours {
    fn take(&mut self) {
        self.guard = Some(self.lock.lock().expect("a guard"));
    }

    fn give(&mut self) {
        self.guard.take().expect("held").unlock().expect("covered");
    }
}
