//! A key that old programs lock with SETNX and GETSET on a time stamp, and a new program that locks it with
//! them until they are gone.
//!
//! `cargo run --example old_fleet` prints
//! ```text
//! server: a private redis-server on port 35791
//! while an old program has it: taken
//! when its stamp is over, as it crashed: mine
//! the old program meanwhile: taken
//! the old program afterwards: mine
//! ```

mod server;

use std::{
    error::Error,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use distlock::{LockClient, TimestampLock, TimestampOptions, redis};
use server::Server;

const KEY: &str = "example:old:orders";

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::find()?;
    let mut old = redis::Client::open(server.url())?.get_connection()?;
    let options = TimestampOptions::new().ttl(Duration::from_secs(10));
    let lock = TimestampLock::with_options(&LockClient::open(server.url())?, KEY, &options)?;

    old_lock(&mut old, Duration::from_millis(1500))?;
    println!("while an old program has it: {}", if lock.try_lock().is_err() { "taken" } else { "mine" });
    // It crashes here: nobody deletes its stamp, which is over soon.
    let guard = lock.try_lock_for(Duration::from_secs(5))?;
    println!("when its stamp is over, as it crashed: mine");
    println!("the old program meanwhile: {}", word(old_lock(&mut old, Duration::from_secs(10))?));
    guard.unlock()?;
    println!("the old program afterwards: {}", word(old_lock(&mut old, Duration::from_secs(10))?));
    redis::cmd("DEL").arg(KEY).exec(&mut old)?;
    Ok(())
}

fn word(held: bool) -> &'static str {
    if held { "mine" } else { "taken" }
}

/// The first step of the old programs: a stamp, if there is none. (The others are GET, and GETSET when what
/// it finds is over.)
fn old_lock(redis: &mut redis::Connection, ttl: Duration) -> Result<bool, Box<dyn Error>> {
    let ends = (SystemTime::now().duration_since(UNIX_EPOCH)? + ttl).as_millis();
    let set: Option<String> = redis::cmd("SET").arg(KEY).arg(ends.to_string()).arg("NX").query(redis)?;
    Ok(set.is_some())
}
