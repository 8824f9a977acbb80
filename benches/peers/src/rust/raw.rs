//! The raw limit: one connection of the redis crate, `SET NX PX` and an EVALSHA compare-and-delete.

use crate::{
    support::{Raw, url},
    worker::{Blocking, Contestant, Lock},
};

const KEY: &str = "peers:raw";

pub(super) fn open(port: u16) -> Box<dyn Contestant> {
    Box::new(Blocking::new(move || Raw::new(&url(port))))
}

impl Lock for Raw {
    fn take(&mut self) {
        assert!(self.acquire(KEY, "token"), "raw does not wait");
    }

    fn give(&mut self) {
        self.release(KEY, "token");
    }
}
