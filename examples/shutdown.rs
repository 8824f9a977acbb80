//! Shutdown by ctrl-c: an `Interrupt` in the options ends the waits of all workers and refuses new ones, so
//! that their loops end; who holds the lock finishes its step and releases.
//!
//! `cargo run --example shutdown`, and press ctrl-c; after 3 s the program does as if you had. It prints
//! ```text
//! server: a private redis-server on port 35791
//! worker 2 holds the lock, the others wait: press ctrl-c
//! ctrl-c: shutting down
//! worker 1 leaves
//! worker 3 leaves
//! worker 2 is through with its step and releases
//! worker 2 leaves
//! all workers have left, nobody holds the lock
//! ```

mod server;

use std::{error::Error, thread, time::Duration};

use distlock::{DistLock, ErrorKind, Interrupt, LockClient, LockOptions};
use server::Server;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let shutdown = Interrupt::new();
    let pressed = shutdown.clone();
    ctrlc::set_handler(move || {
        println!("ctrl-c: shutting down");
        pressed.interrupt(); // on a thread of that crate, not in the signal handler: there it must not be called
    })?;
    let server = Server::find()?;
    let options = LockOptions::new().interrupt(&shutdown);
    let lock = DistLock::with_options(&LockClient::open(server.url())?, "example:shutdown", &options)?;

    let workers: Vec<_> = (1..=3)
        .map(|name| {
            let (lock, shutdown) = (lock.clone(), shutdown.clone());
            thread::spawn(move || worker(name, &lock, &shutdown))
        })
        .collect();
    let impatient = shutdown.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(3));
        println!("nobody presses ctrl-c: shutting down");
        impatient.interrupt();
    });
    for worker in workers {
        worker.join().map_err(|_| "a worker panicked")??;
    }
    let held = lock.is_locked()?;
    println!("all workers have left, {} the lock", if held { "somebody holds" } else { "nobody holds" });
    Ok(())
}

/// Takes the lock again and again; in a shutdown that is refused, and the loop ends.
fn worker(name: u32, lock: &DistLock, shutdown: &Interrupt) -> Result<()> {
    loop {
        let guard = match lock.lock() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {
                println!("worker {name} leaves");
                return Ok(());
            }
            answer => answer?,
        };
        println!("worker {name} holds the lock, the others wait: press ctrl-c");
        while !shutdown.is_interrupted() {
            thread::sleep(Duration::from_millis(500)); // a step of the work
        }
        println!("worker {name} is through with its step and releases");
        guard.unlock()?;
    }
}
