//! Several processes with several threads each drain one job list, and no job is done twice:
//! `cargo run --example worker_pool`.
//!
//! A lock a job: whoever gets it looks whether the job is still open, does it, and marks it as done
//! with the fence of the hold. Uses `REDIS_URL` if it is set, else a private server from PATH, else a
//! demo server in the first process.

mod server;

use std::{process::Command, thread, time::Duration};

use distlock::{DistLock, LockClient, LockOptions, redis};
use server::Server;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const PROCESSES: usize = 4;
const THREADS: usize = 4;
const JOBS: usize = 60;

/// What a worker is told: where the server is, and the prefix of this run's keys. By its environment,
/// since an address may have a password, which others could read among the arguments.
const URL: &str = "WORKER_POOL_URL";
const RUN: &str = "WORKER_POOL_RUN";

fn main() -> Result<()> {
    match (std::env::var(URL), std::env::var(RUN)) {
        (Ok(url), Ok(run)) => worker(&url, &run),
        _ => pool(),
    }
}

/// The pool: starts the workers, and checks what they did.
fn pool() -> Result<()> {
    let server = Server::find()?;
    println!("{PROCESSES} processes with {THREADS} threads each, {JOBS} jobs");
    let mut connection = redis::Client::open(server.url())?.get_connection()?;

    let run = format!("pool:{}", std::process::id());
    let program = std::env::current_exe()?;
    let start = |_| Command::new(&program).env(URL, server.url()).env(RUN, &run).spawn();
    let workers: Vec<_> = (0..PROCESSES).map(start).collect::<Result<_, _>>()?;
    let ends: Vec<_> = workers.into_iter().map(|mut worker| worker.wait()).collect();

    let done: Vec<String> = redis::cmd("LRANGE").arg(format!("{run}:log")).arg(0).arg(-1).query(&mut connection)?;
    redis::pipe().del(format!("{run}:done")).del(format!("{run}:log")).exec(&mut connection)?;
    if !ends.into_iter().all(|end| end.is_ok_and(|status| status.success())) {
        return Err("a worker failed".into());
    }
    let jobs: std::collections::BTreeSet<&str> = done.iter().map(String::as_str).collect();
    if done.len() != JOBS || jobs.len() != JOBS {
        return Err(format!("{} jobs were done {} times", jobs.len(), done.len()).into());
    }
    println!("all {JOBS} jobs were done, each once");
    Ok(())
}

/// One process: its threads share a client.
fn worker(url: &str, run: &str) -> Result<()> {
    let client = LockClient::open(url)?;
    client.ping()?;
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (client, url, run) = (client.clone(), url.to_owned(), run.to_owned());
            thread::spawn(move || drain(&client, &url, &run, thread))
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
}

/// One thread: goes through the list and does what is open.
fn drain(client: &LockClient, url: &str, run: &str, thread: usize) -> Result<()> {
    let mut store = redis::Client::open(url)?.get_connection()?;
    let (list, log) = (format!("{run}:done"), format!("{run}:log"));
    let me = format!("{}/{thread}", std::process::id());
    let options = LockOptions::new().ttl(Duration::from_secs(5)).label(&me);
    for job in 0..JOBS {
        let lock = DistLock::with_options(client, format!("{run}:job:{job}"), &options)?;
        let guard = match lock.try_lock() {
            Ok(guard) => guard,
            Err(e) if e.is_taken() => continue, // somebody is at it
            Err(e) => return Err(e.into()),
        };
        // Look, work, mark: three steps that only the lock makes one.
        let done: bool = redis::cmd("HEXISTS").arg(&list).arg(job).query(&mut store)?;
        if !done {
            thread::sleep(Duration::from_millis(5)); // the work
            redis::cmd("RPUSH").arg(&log).arg(job).exec(&mut store)?;
            redis::cmd("HSET").arg(&list).arg(job).arg(guard.fence()).exec(&mut store)?;
            println!("job {job:>2} by {me}, fence {}", guard.fence());
        }
        guard.unlock()?; // an error: the job was not covered to its end
    }
    Ok(())
}
