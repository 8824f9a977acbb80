//! A hold goes from one process to another without a moment in which the lock is free: the first one gives
//! the token away (`into_token`), the second one takes the hold over with it (`resume`).
//!
//! `cargo run --example hand_over` prints
//! ```text
//! server: a private redis-server on port 35791
//! the first process holds, fence 1764547200000000
//! given away: taken for others
//! the second process holds, fence 1764547200031415
//! the second process is through
//! the lock is free
//! ```

mod server;

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::{Command, Stdio},
};

use distlock::{DistLock, LockClient, OptionalExt};
use server::Server;

const KEY: &str = "example:migration";

fn main() -> Result<(), Box<dyn Error>> {
    if env::args().nth(1).as_deref() == Some("second") {
        return second();
    }
    let server = Server::find()?;
    let lock = DistLock::new(&LockClient::open(server.url())?, KEY);
    let guard = lock.lock()?;
    println!("the first process holds, fence {}", guard.fence());

    // From here on nobody renews: the other one has one ttl (30 s) to take over.
    let token = guard.into_token()?;
    let free = lock.try_lock().optional()?.is_some();
    println!("given away: {} for others", if free { "free" } else { "taken" });
    if let Err(e) = hand_over(&token, &server.url()) {
        // The hold is ours as long as nobody else has resumed it: taken back, and released.
        lock.resume(&token)?.unlock()?;
        return Err(e);
    }
    let free = lock.try_lock().optional()?.is_some();
    println!("the lock is {}", if free { "free" } else { "taken" });
    Ok(())
}

/// By a pipe: a token proves the hold, and others can read the arguments of a process.
fn hand_over(token: &str, url: &str) -> Result<(), Box<dyn Error>> {
    let program = env::current_exe()?;
    let mut second = Command::new(program).arg("second").env("REDIS_URL", url).stdin(Stdio::piped()).spawn()?;
    if let Some(mut pipe) = second.stdin.take() {
        writeln!(pipe, "{token}")?;
    }
    let status = second.wait()?;
    if status.success() { Ok(()) } else { Err(format!("the second process failed, {status}").into()) }
}

/// The second process: goes on where the first one stopped.
fn second() -> Result<(), Box<dyn Error>> {
    let token = io::read_to_string(io::stdin())?;
    let lock = DistLock::new(&LockClient::open(env::var("REDIS_URL")?)?, KEY);
    let guard = lock.resume(token.trim())?; // an error if it is lost: too late
    println!("the second process holds, fence {}", guard.fence());
    guard.unlock()?;
    println!("the second process is through");
    Ok(())
}
