//! Writes to Redis that happen only under the lock. In the lock's own Redis the guard runs commands
//! (`query`) and scripts (`invoke`) while the lock is held, in one step; for data in another Redis a
//! `FenceGate` there lets no holder write that is not the newest.
//!
//! `cargo run --example guarded_write` prints
//! ```text
//! server: a private redis-server on port 35791
//! held: 97 are left
//! held: a script raises the price to 15
//! lost: refused, 97 are left
//! the gate: the newest holder writes
//! the gate: a late one is refused, the shelf is "full"
//! ```

mod server;

use std::error::Error;

use distlock::{
    DistLock, ErrorKind, FenceGate, LockClient,
    redis::{self, Script},
};
use server::Server;

const KEY: &str = "example:article";
const STOCK: &str = "example:article:stock";
const PRICE: &str = "example:article:price";
const SHELF: &str = "example:article:shelf";
const GATE: &str = "example:article:shelf:fence";

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::find()?;
    let client = LockClient::open(server.url())?;
    let mut redis = redis::Client::open(server.url())?.get_connection()?;
    redis::pipe().set(STOCK, 100).set(PRICE, 10).exec(&mut redis)?;

    let late = DistLock::new(&client, KEY).lock()?;
    let (left,): (i64,) = late.query(redis::pipe().incr(STOCK, -3))?;
    println!("held: {left} are left");
    let raise = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    let price: i64 = late.invoke(raise.key(PRICE).arg(5))?;
    println!("held: a script raises the price to {price}");

    // Somebody deletes the lock and another one gets it: the first guard may not know it yet.
    redis::cmd("DEL").arg(KEY).exec(&mut redis)?;
    let newest = DistLock::new(&LockClient::open(server.url())?, KEY).lock()?;
    let refused = is_refused(late.exec(redis::pipe().incr(STOCK, -3)))?;
    let left: i64 = redis::cmd("GET").arg(STOCK).query(&mut redis)?;
    println!("lost: {}, {left} are left", if refused { "refused" } else { "written" });

    // The gate's client may be one of any other Redis: it does not ask for the lock, it compares fences.
    let gate = FenceGate::new(&client, GATE);
    gate.exec(newest.fence(), redis::pipe().set(SHELF, "full"))?;
    println!("the gate: the newest holder writes");
    let refused = is_refused(gate.exec(late.fence(), redis::pipe().set(SHELF, "empty")))?;
    let shelf: String = redis::cmd("GET").arg(SHELF).query(&mut redis)?;
    println!("the gate: a late one is {}, the shelf is {shelf:?}", if refused { "refused" } else { "let in" });

    newest.unlock()?;
    redis::cmd("DEL").arg(&[STOCK, PRICE, SHELF, GATE]).exec(&mut redis)?;
    Ok(())
}

/// `Lost` says that nothing was executed; any other error is one.
fn is_refused(answer: distlock::Result<()>) -> distlock::Result<bool> {
    match answer {
        Err(e) if e.kind() == ErrorKind::Lost => Ok(true),
        answer => answer.map(|()| false),
    }
}
