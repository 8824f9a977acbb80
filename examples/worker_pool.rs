//! Several processes with several threads each drain one job list, and no job is done twice:
//! `cargo run --example worker_pool`.
//!
//! A lock a job: whoever gets it looks whether the job is still open, does it, and marks it as done
//! with the fence of the hold. Uses `REDIS_URL` if it is set, else a private server from PATH.

mod private_server;

use std::{process::Command, thread, time::Duration};

use distlock::{DistLock, LockClient, LockOptions, redis};
use private_server::PrivateServer;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const PROCESSES: usize = 4;
const THREADS: usize = 4;
const JOBS: usize = 60;

fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(url) => worker(&url),
        None => pool(),
    }
}

/// The pool: starts the workers, and checks what they did.
fn pool() -> Result<()> {
    let server = PrivateServer::or_given()?;
    println!("{PROCESSES} processes with {THREADS} threads each, {JOBS} jobs, on {}", server.describe());
    let mut connection = redis::Client::open(server.url())?.get_connection()?;
    redis::pipe().del("pool:done").del("pool:log").exec(&mut connection)?;

    let program = std::env::current_exe()?;
    let workers: Vec<_> = (0..PROCESSES).map(|_| Command::new(&program).arg(server.url()).spawn()).collect();
    for worker in workers {
        if !worker?.wait()?.success() {
            return Err("a worker failed".into());
        }
    }

    let done: Vec<String> = redis::cmd("LRANGE").arg("pool:log").arg(0).arg(-1).query(&mut connection)?;
    let jobs: std::collections::BTreeSet<&str> = done.iter().map(String::as_str).collect();
    redis::pipe().del("pool:done").del("pool:log").exec(&mut connection)?;
    if done.len() != JOBS || jobs.len() != JOBS {
        return Err(format!("{} jobs were done {} times", jobs.len(), done.len()).into());
    }
    println!("all {JOBS} jobs were done, each once");
    Ok(())
}

/// One process: its threads share a client.
fn worker(url: &str) -> Result<()> {
    let client = LockClient::open(url)?;
    client.ping()?;
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (client, url) = (client.clone(), url.to_owned());
            thread::spawn(move || drain(&client, &url, thread))
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
}

/// One thread: goes through the list and does what is open.
fn drain(client: &LockClient, url: &str, thread: usize) -> Result<()> {
    let mut store = redis::Client::open(url)?.get_connection()?;
    let me = format!("{}/{thread}", std::process::id());
    let options = LockOptions::new().ttl(Duration::from_secs(5)).label(&me);
    for job in 0..JOBS {
        let lock = DistLock::with_options(client, format!("pool:job:{job}"), &options)?;
        let guard = match lock.try_lock() {
            Ok(guard) => guard,
            Err(e) if e.is_taken() => continue, // somebody is at it
            Err(e) => return Err(e.into()),
        };
        // Look, work, mark: three steps that only the lock makes one.
        let done: bool = redis::cmd("HEXISTS").arg("pool:done").arg(job).query(&mut store)?;
        if !done {
            thread::sleep(Duration::from_millis(5)); // the work
            redis::cmd("RPUSH").arg("pool:log").arg(job).exec(&mut store)?;
            redis::cmd("HSET").arg("pool:done").arg(job).arg(guard.fence()).exec(&mut store)?;
            println!("job {job:>2} by {me}, fence {}", guard.fence());
        }
        guard.unlock()?; // an error: the job was not covered to its end
    }
    Ok(())
}
