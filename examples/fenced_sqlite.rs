//! A row in SQLite that takes no write of a late holder. The first packer stands still beyond its lease, so
//! that a second one gets the lock; what the first one writes when it wakes up is refused by its fence.
//!
//! `cargo run --example fenced_sqlite` prints
//! ```text
//! server: a private redis-server on port 35791
//! the first packer writes "packed": accepted
//! the first packer stands still, and its lease ends
//! the second packer writes "sent": accepted
//! the first packer writes "cancelled": refused
//! the order is "sent"
//! the first packer's unlock: the section was not covered
//! ```

mod server;

use std::{error::Error, time::Duration};

use distlock::{DistLock, ErrorKind, LockClient, LockOptions, Renew};
use rusqlite::Connection;
use server::Server;

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::find()?;
    let db = Connection::open_in_memory()?;
    db.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
         INSERT INTO orders (id, state) VALUES (42, 'new');",
    )?;
    // A process that stands still renews nothing; this is how to have that without stopping it.
    let stopped = LockOptions::new().ttl(Duration::from_millis(300)).renew(Renew::Never);
    let first = DistLock::with_options(&LockClient::open(server.url())?, "example:order:42", &stopped)?;
    let second = DistLock::new(&LockClient::open(server.url())?, "example:order:42");

    let late = first.lock()?;
    println!("the first packer writes \"packed\": {}", write(&db, "packed", late.fence())?);
    if late.wait_lost_for(Duration::from_secs(10)) {
        println!("the first packer stands still, and its lease ends");
    }
    let guard = second.lock()?;
    println!("the second packer writes \"sent\": {}", write(&db, "sent", guard.fence())?);
    println!("the first packer writes \"cancelled\": {}", write(&db, "cancelled", late.fence())?);
    guard.unlock()?;

    let state: String = db.query_row("SELECT state FROM orders WHERE id = 42", (), |row| row.get(0))?;
    println!("the order is {state:?}");
    match late.unlock() {
        Err(e) if e.kind() == ErrorKind::Lost => println!("the first packer's unlock: the section was not covered"),
        answer => answer?,
    }
    Ok(())
}

/// Remembers the highest fence in the row and refuses a lower one: the comparison and the write are one statement.
fn write(db: &Connection, state: &str, fence: u64) -> Result<&'static str, Box<dyn Error>> {
    let fence = i64::try_from(fence)?; // a fence is below 2^53
    let rows = db.execute("UPDATE orders SET state = ?1, fence = ?2 WHERE id = 42 AND fence <= ?2", (state, fence))?;
    Ok(if rows == 1 { "accepted" } else { "refused" })
}
