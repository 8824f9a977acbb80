//! Crate `redlock`: one manager a process, shared by its threads; a new connection for each command, a
//! random pause of up to 200 ms after a refusal, which is followed by a release.

use redlock::RedLock;

use super::TTL;
use crate::{
    support::url,
    worker::{Blocking, Contestant, Lock},
};

struct Theirs {
    manager: &'static RedLock,
    held: Option<redlock::Lock<'static>>,
}

pub(super) fn open(port: u16) -> Box<dyn Contestant> {
    // A lock borrows its manager; both live as long as the process.
    let manager: &'static RedLock = Box::leak(Box::new(RedLock::new(vec![url(port)])));
    Box::new(Blocking::new(move || Theirs { manager, held: None }))
}

impl Lock for Theirs {
    fn take(&mut self) {
        let ttl = TTL.as_millis() as usize;
        // It gives up after three attempts; its own `acquire` loops like this.
        while self.held.is_none() {
            self.held = self.manager.lock(b"peers:redlock", ttl).expect("an answer");
        }
    }

    fn give(&mut self) {
        self.manager.unlock(&self.held.take().expect("held"));
    }
}
