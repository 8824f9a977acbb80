//! A job that cron starts on every host at the same minute, and that one host does: the others find the
//! lock taken, or the job done, and leave. The hosts are processes here.
//!
//! `cargo run --example cron` prints, with the hosts in any order,
//! ```text
//! server: a private redis-server on port 35791
//! host-2: does the job
//! host-1: taken, leaves
//! host-3: taken, leaves
//! host-2: is through
//! host-4: done already, leaves
//! ```

mod server;

use std::{env, error::Error, process::Command, thread, time::Duration};

use distlock::{DistLock, LockClient, LockOptions, OptionalExt, redis};
use server::Server;

/// What was done last: here the id of this run, on real hosts the minute of the crontab.
const LAST: &str = "example:report:last";
const A_DAY: u64 = 24 * 60 * 60;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(host), Some(minute)) => job(&host, &minute),
        _ => hosts(),
    }
}

/// What cron starts.
fn job(host: &str, minute: &str) -> Result<(), Box<dyn Error>> {
    let client = LockClient::open(env::var("REDIS_URL")?)?;
    let lock = DistLock::with_options(&client, "example:report", &LockOptions::new().label(host))?;
    let Some(guard) = lock.try_lock().optional()? else {
        println!("{host}: taken, leaves");
        return Ok(());
    };
    // A host whose clock is late comes when the lock is free again. So whoever gets it looks.
    let (last,): (Option<String>,) = guard.query(redis::pipe().get(LAST))?;
    if last.as_deref() == Some(minute) {
        println!("{host}: done already, leaves");
    } else {
        println!("{host}: does the job");
        thread::sleep(Duration::from_secs(1));
        guard.exec(redis::pipe().cmd("SET").arg(LAST).arg(minute).arg("EX").arg(A_DAY))?;
        println!("{host}: is through");
    }
    guard.unlock()?; // an error: the job was not covered to its end
    Ok(())
}

/// Three hosts at the same time, and a late one.
fn hosts() -> Result<(), Box<dyn Error>> {
    let server = Server::find()?;
    let program = env::current_exe()?;
    let minute = format!("run {}", std::process::id());
    let start = |host: &str| Command::new(&program).args([host, &minute]).env("REDIS_URL", server.url()).spawn();

    let hosts: Vec<_> = ["host-1", "host-2", "host-3"].into_iter().map(start).collect::<Result<_, _>>()?;
    for mut host in hosts {
        host.wait()?;
    }
    start("host-4")?.wait()?; // the late one
    redis::cmd("DEL").arg(LAST).exec(&mut redis::Client::open(server.url())?.get_connection()?)?;
    Ok(())
}
