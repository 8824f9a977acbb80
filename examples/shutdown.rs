//! Shutdown by ctrl-c: an `Interrupt` in the options ends the waits of all workers and refuses new ones, so
//! that their loops end; who holds the lock finishes its step and releases.
//!
//! `cargo run --example shutdown`, and press ctrl-c; after 3 s the program does it itself. It prints
//! ```text
//! server: a private redis-server on port 35791
//! worker 2 holds the lock, the others wait: press ctrl-c
//! shutdown
//! worker 1: the wait was ended
//! worker 3: the wait was ended
//! worker 2: released
//! all workers have ended, nobody holds the lock
//! ```

mod server;

use std::{error::Error, thread, time::Duration};

use distlock::{DistLock, ErrorKind, Interrupt, LockClient, LockOptions};
use server::Server;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let shutdown = Interrupt::new();
    let pressed = shutdown.clone();
    ctrlc::set_handler(move || pressed.interrupt())?; // on a thread of its own, so it may
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
        impatient.interrupt(); // as ctrl-c does
    });
    for worker in workers {
        worker.join().map_err(|_| "a worker panicked")??;
    }
    let held = lock.is_locked()?;
    println!("all workers have ended, {} the lock", if held { "somebody still holds" } else { "nobody holds" });
    Ok(())
}

/// Takes the lock again and again, and ends by itself when there is a shutdown.
fn worker(name: u32, lock: &DistLock, shutdown: &Interrupt) -> Result<()> {
    loop {
        let guard = match lock.lock() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {
                println!("worker {name}: the wait was ended");
                return Ok(());
            }
            answer => answer?,
        };
        println!("worker {name} holds the lock, the others wait: press ctrl-c");
        while !shutdown.is_interrupted() {
            thread::sleep(Duration::from_millis(50)); // a step of the work
        }
        guard.unlock()?;
        println!("worker {name}: released");
    }
}
