//! Trying with a time limit, and what can come of it: the lock, "taken", Redis out of reach, or a mistake
//! in the set-up. `.optional()` is for those to whom "taken" is no error.
//!
//! `cargo run --example try_for` prints
//! ```text
//! server: a private redis-server on port 35791
//! while somebody else has it: taken, come back later
//! while somebody else has it, as an option: None
//! when it is free: done
//! when it becomes free during the wait: done
//! when Redis cannot be reached: try again later
//! when the key holds something else: fix the set-up: WrongType
//! ```

mod server;

use std::{error::Error, thread, time::Duration};

use distlock::{DistLock, LockClient, OptionalExt, redis};
use server::Server;

const KEY: &str = "example:seat:12A";

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::find()?;
    let lock = DistLock::new(&LockClient::open(server.url())?, KEY);
    let somebody_else = DistLock::new(&LockClient::open(server.url())?, KEY);

    let guard = somebody_else.lock()?;
    println!("while somebody else has it: {}", book(&lock, Duration::from_millis(200)));
    let option = lock.try_lock().optional()?; // Err is Redis or the set-up; None is "taken"
    println!("while somebody else has it, as an option: {:?}", option.map(|guard| guard.fence()));
    guard.unlock()?;
    println!("when it is free: {}", book(&lock, Duration::ZERO)); // one attempt

    let guard = somebody_else.lock()?;
    let release = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        guard.unlock()
    });
    println!("when it becomes free during the wait: {}", book(&lock, Duration::from_secs(5)));
    release.join().map_err(|_| "the other one panicked")??;

    let nowhere = LockClient::open("redis://127.0.0.1:1/")?; // opens no connection, so it is no error
    let unreachable = DistLock::new(&nowhere, KEY);
    println!("when Redis cannot be reached: {}", book(&unreachable, Duration::from_millis(200)));

    let list = "example:seat:list";
    let mut redis = redis::Client::open(server.url())?.get_connection()?;
    redis::cmd("RPUSH").arg(list).arg("a").exec(&mut redis)?;
    let misused = DistLock::new(&LockClient::open(server.url())?, list);
    println!("when the key holds something else: {}", book(&misused, Duration::from_secs(5)));
    redis::cmd("DEL").arg(list).exec(&mut redis)?;
    Ok(())
}

/// Three ways out for the caller: come back when the other one is through, come back when Redis is, or
/// wake up an operator. The kinds are many; these questions sort them.
fn book(lock: &DistLock, patience: Duration) -> String {
    match lock.try_lock_for(patience) {
        Ok(_guard) => "done".to_owned(), // the work; the guard's drop releases
        Err(e) if e.is_taken() => "taken, come back later".to_owned(),
        Err(e) if e.is_transient() => "try again later".to_owned(),
        Err(e) => format!("fix the set-up: {:?}", e.kind()),
    }
}
