//! A threaded HTTP server that pays an order once at a time, on however many hosts it runs: 200 paid,
//! 409 somebody else has the order, 503 Redis cannot be asked now. The program is its own client.
//!
//! `cargo run --example http_orders` prints
//! ```text
//! server: a private redis-server on port 35791
//! POST /orders/42, nobody else has it: 200
//! POST /orders/42, another host has it: 409
//! POST /orders/43 meanwhile: 200
//! POST /orders/42, free again, two at once: 200 and 200
//! POST /orders/42, Redis cannot be reached: 503
//! ```

mod server;

use std::{
    error::Error,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use distlock::{DistLock, LockClient};
use server::Server;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// How long a request waits for its order. `lock()` has no such limit: in a request handler it would turn
/// an outage into blocked threads.
const PATIENCE: Duration = Duration::from_millis(500);
const THREADS: usize = 4;

fn main() -> Result<()> {
    let redis = Server::find()?;
    let shop = serve(&LockClient::open(redis.url())?)?;
    let other_host = DistLock::new(&LockClient::open(redis.url())?, "example:order:42");

    println!("POST /orders/42, nobody else has it: {}", post(shop, "/orders/42")?);
    let guard = other_host.lock()?;
    println!("POST /orders/42, another host has it: {}", post(shop, "/orders/42")?);
    println!("POST /orders/43 meanwhile: {}", post(shop, "/orders/43")?);
    guard.unlock()?;
    let second = thread::spawn(move || post(shop, "/orders/42"));
    let (first, second) = (post(shop, "/orders/42")?, second.join().map_err(|_| "a client panicked")??);
    println!("POST /orders/42, free again, two at once: {first} and {second}");

    let cut_off = serve(&LockClient::open("redis://127.0.0.1:1/")?)?; // nobody listens there
    println!("POST /orders/42, Redis cannot be reached: {}", post(cut_off, "/orders/42")?);
    Ok(())
}

/// Starts the server; its threads share the client, and end with the process.
fn serve(locks: &LockClient) -> Result<SocketAddr> {
    let server = Arc::new(tiny_http::Server::http("127.0.0.1:0")?);
    for _ in 0..THREADS {
        let (server, locks) = (Arc::clone(&server), locks.clone());
        thread::spawn(move || {
            for request in server.incoming_requests() {
                let status = request.url().strip_prefix("/orders/").map_or(404, |order| pay(&locks, order));
                if let Err(e) = request.respond(tiny_http::Response::empty(status)) {
                    eprintln!("a client did not wait for its answer: {e}");
                }
            }
        });
    }
    server.server_addr().to_ip().ok_or_else(|| "no address".into())
}

/// One lock an order: requests for the same one take turns, others do not wait for each other.
fn pay(locks: &LockClient, order: &str) -> u16 {
    let lock = DistLock::new(locks, format!("example:order:{order}"));
    let paid = lock.try_lock_for(PATIENCE).and_then(|guard| {
        thread::sleep(Duration::from_millis(20)); // the payment, with guard.fence() for what it writes to
        guard.unlock()
    });
    match paid {
        Ok(()) => 200,
        Err(e) if e.is_taken() => 409,
        Err(e) if e.is_transient() => 503,
        Err(e) => {
            eprintln!("order {order}: {e}"); // also a lost lock: somebody must look at what was paid
            500
        }
    }
}

/// The client: posts nothing, and wants to know the status.
fn post(shop: SocketAddr, path: &str) -> Result<u16> {
    let mut stream = TcpStream::connect(shop)?;
    let request = format!("POST {path} HTTP/1.1\r\nHost: {shop}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split(' ').nth(1).ok_or("not HTTP")?.parse()?)
}
