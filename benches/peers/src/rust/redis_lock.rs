//! Crate `redis-lock`, its synchronous lock: a connection a thread, a pause of one second between attempts.

use redis_lock::{DEFAULT_SLEEP, DEFAULT_TIMEOUT, sync};
use redis_of_redis_lock::Client;

use super::TTL;
use crate::{
    support::url,
    worker::{Blocking, Contestant, Lock},
};

struct Theirs {
    lock: sync::MultiResourceLock,
    resources: [String; 1],
    id: Option<String>,
}

pub(super) fn open(port: u16) -> Box<dyn Contestant> {
    let client = Client::open(url(port)).expect("an address");
    sync::setup(&client).expect("a server with FUNCTION");
    Box::new(Blocking::new(move || Theirs {
        lock: sync::MultiResourceLock::new(&client).expect("a connection"),
        resources: ["peers:redis-lock".to_owned()],
        id: None,
    }))
}

impl Lock for Theirs {
    fn take(&mut self) {
        while self.id.is_none() {
            self.id = self.lock.acquire(&self.resources, TTL, DEFAULT_TIMEOUT, DEFAULT_SLEEP).expect("an answer");
        }
    }

    fn give(&mut self) {
        let released = self.lock.release(&self.id.take().expect("held")).expect("an answer");
        assert_eq!(released, 1);
    }
}
