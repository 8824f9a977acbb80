//! Leader election: of two candidates one leads and has a child process do the work, which it kills when
//! the lead is lost. To show it an operator deletes the key of the lock; the other candidate takes over.
//!
//! `cargo run --example leader` prints (the lines of the two candidates in any order)
//! ```text
//! server: a private redis-server on port 35791
//! anna leads: the work starts
//! the operator deletes the key
//! anna lost the lead: the work is over, signal: 9 (SIGKILL)
//! bert leads: the work starts
//! bert steps down: the work is over, signal: 9 (SIGKILL)
//! ```

mod server;

use std::{
    env,
    error::Error,
    io::{self, Read},
    process::{Command, Stdio},
    sync::mpsc::{self, Sender},
    thread,
    time::Duration,
};

use distlock::{DistLock, ErrorKind, Interrupt, LockClient, LockOptions, redis};
use server::Server;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const KEY: &str = "example:leader";
/// A leader that crashes is replaced within this time; one that lost the lead knows it within a third of it.
const TTL: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    if env::args().nth(1).as_deref() == Some("work") {
        return work();
    }
    let server = Server::find()?;
    let (told, leads) = mpsc::channel();
    let shutdown = Interrupt::new();
    let candidate = |name: &'static str| {
        let (url, shutdown, told) = (server.url(), shutdown.clone(), told.clone());
        thread::spawn(move || campaign(name, &url, &shutdown, &told))
    };
    let patience = Duration::from_secs(10);

    let anna = candidate("anna");
    leads.recv_timeout(patience)?;
    let bert = candidate("bert");
    println!("the operator deletes the key");
    redis::cmd("DEL").arg(KEY).exec(&mut redis::Client::open(server.url())?.get_connection()?)?;
    anna.join().map_err(|_| "anna panicked")??;
    leads.recv_timeout(patience)?;
    shutdown.interrupt();
    bert.join().map_err(|_| "bert panicked")?
}

/// Waits for the lead, has the work done, and ends with the lead or the shutdown, whichever is first.
fn campaign(name: &str, url: &str, shutdown: &Interrupt, told: &Sender<String>) -> Result<()> {
    let options = LockOptions::new().ttl(TTL).label(name).interrupt(shutdown);
    let lock = DistLock::with_options(&LockClient::open(url)?, KEY, &options)?;
    let guard = match lock.lock() {
        Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(()),
        answer => answer?,
    };
    // What the work writes to gets guard.fence(): the last write may be under way when the lead is lost.
    let mut work = Command::new(env::current_exe()?).arg("work").stdin(Stdio::piped()).spawn()?;
    println!("{name} leads: the work starts");
    told.send(name.to_owned())?;

    let mut lost = false;
    while !lost && !shutdown.is_interrupted() && work.try_wait()?.is_none() {
        lost = guard.wait_lost_for(Duration::from_millis(100)); // back at once when it is lost
    }
    work.kill()?;
    let end = if lost { "lost the lead" } else { "steps down" };
    println!("{name} {end}: the work is over, {}", work.wait()?);
    if lost { Ok(()) } else { Ok(guard.unlock()?) }
}

/// The child: would work for ever. It also ends when its leader crashes, which closes its standard input.
fn work() -> Result<()> {
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
