//! From a `Mutex` to a lock across processes: the same shop before and after, which must never sell more
//! than it has. The number in the `Mutex` becomes a key in Redis with a `DistLock` beside it; `lock()`
//! stays the word, and an outage of Redis is its error.
//!
//! `cargo run --example from_mutex` prints
//! ```text
//! before: 1 process with 4 sellers sold 50 of 50
//! server: a private redis-server on port 35791
//! after: 3 processes with 4 sellers each sold 50 of 50
//! ```

mod server;

use std::{env, error::Error, process, sync::Mutex, thread};

use distlock::{DistLock, LockClient, redis};
use server::Server;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const KEY: &str = "example:shop:stock";
const STOCK: usize = 50;
const PROCESSES: usize = 3;
const SELLERS: usize = 4;
/// Sales that a seller tries: together they want more than there is.
const TRIES: usize = 15;

fn main() -> Result<()> {
    if env::args().nth(1).as_deref() == Some("shop") {
        println!("{}", after(&env::var("REDIS_URL")?)?);
        return Ok(());
    }
    println!("before: 1 process with {SELLERS} sellers sold {} of {STOCK}", before()?);
    let server = Server::find()?;
    let mut redis = redis::Client::open(server.url())?.get_connection()?;
    redis::cmd("SET").arg(KEY).arg(STOCK).exec(&mut redis)?;
    let sold = shops(&server.url());
    redis::cmd("DEL").arg(KEY).exec(&mut redis)?;
    println!("after: {PROCESSES} processes with {SELLERS} sellers each sold {} of {STOCK}", sold?);
    Ok(())
}

/// Before: the number is inside.
fn before() -> Result<usize> {
    let stock = Mutex::new(STOCK);
    sell_out(|| {
        let mut left = stock.lock().map_err(|_| "a seller panicked")?;
        let sold = *left > 0;
        *left -= usize::from(sold);
        Ok(sold)
    })
}

/// After: the number is in Redis, and the lock beside it has its name only by agreement.
fn after(url: &str) -> Result<usize> {
    let client = LockClient::open(url)?;
    let lock = DistLock::new(&client, "example:shop");
    sell_out(|| {
        let guard = lock.lock()?;
        // Through the guard: nothing is read or written unless the lock is held at that moment.
        let (left,): (usize,) = guard.query(redis::pipe().get(KEY))?;
        let sold = left > 0;
        guard.exec(redis::pipe().set(KEY, left - usize::from(sold)))?;
        guard.unlock()?;
        Ok(sold)
    })
}

/// All sellers of one process: how many of their tries were sales.
fn sell_out(sell: impl Fn() -> Result<bool> + Sync) -> Result<usize> {
    let seller = || (0..TRIES).try_fold(0, |sales, _| Ok(sales + usize::from(sell()?)));
    thread::scope(|scope| {
        let sellers: Vec<_> = (0..SELLERS).map(|_| scope.spawn(seller)).collect();
        sellers.into_iter().map(|thread| thread.join().map_err(|_| "a seller panicked")?).sum()
    })
}

/// This program again, several times: how many sales they had together.
fn shops(url: &str) -> Result<usize> {
    let mut shop = process::Command::new(env::current_exe()?);
    shop.arg("shop").env("REDIS_URL", url).stdout(process::Stdio::piped());
    let shops: Vec<_> = (0..PROCESSES).map(|_| shop.spawn()).collect::<Result<_, _>>()?;
    shops.into_iter().map(|shop| Ok(String::from_utf8(shop.wait_with_output()?.stdout)?.trim().parse::<usize>()?)).sum()
}
