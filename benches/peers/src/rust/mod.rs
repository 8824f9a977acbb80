//! The contestants of Rust, one file a library. Each takes the ttl of [`TTL`] where it asks for one, and
//! its own defaults for everything else.

mod distlock;
mod raw;
mod redis_lock;
mod redlock;
mod rslock;

use std::time::Duration;

use crate::worker::Contestant;

const TTL: Duration = Duration::from_secs(30);

pub(crate) fn open(name: &str, port: u16) -> Box<dyn Contestant> {
    match name {
        "raw" => raw::open(port),
        "distlock" => distlock::open(port),
        "redlock" => redlock::open(port),
        "rslock" => rslock::open(port),
        "redis-lock" => redis_lock::open(port),
        _ => panic!("nobody is called {name}"),
    }
}
