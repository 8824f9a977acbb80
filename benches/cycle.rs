//! The uncontended cycle, acquire and release, beside the raw limit and beside our own scripts over
//! one bare connection, in the same run: `taskset -c 0 cargo bench --bench cycle`.

mod support;

use std::time::Instant;

use distlock::{DistLock, LockClient};
use support::{Bare, Raw, Server, median};

/// A name, and one cycle.
type Contestant<'a> = (&'static str, Box<dyn FnMut() + 'a>);

const ROUNDS: usize = 40;
const CYCLES: usize = 2_000;

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        // `cargo test --benches` only wants to know that it starts.
        return;
    }
    let server = Server::start();
    let mut raw = Raw::new(&server.url());
    let mut bare = Bare::new(&server.url(), "bench:bare");
    let client = LockClient::open(server.url()).expect("an address");
    let lock = DistLock::new(&client, "bench:lock");

    let mut contestants: [Contestant<'_>; 4] = [
        (
            "raw: SET NX PX + compare-and-delete",
            Box::new(move || {
                assert!(raw.acquire("bench:raw", "token"));
                raw.release("bench:raw", "token");
            }),
        ),
        ("our scripts, one bare connection", Box::new(move || bare.cycle())),
        ("DistLock: lock, unlock", Box::new(|| lock.lock().and_then(|guard| guard.unlock()).expect("a cycle"))),
        ("DistLock: try_lock, drop", Box::new(|| drop(lock.try_lock().expect("a guard")))),
    ];

    let mut rates: [Vec<f64>; 4] = Default::default();
    for round in 0..=ROUNDS {
        // The order changes, so that what disturbs the machine for a while hits all alike.
        for turn in 0..contestants.len() {
            let i = (round + turn) % contestants.len();
            let start = Instant::now();
            (0..CYCLES).for_each(|_| contestants[i].1());
            // The first round warms up.
            if round > 0 {
                rates[i].push(CYCLES as f64 / start.elapsed().as_secs_f64());
            }
        }
    }

    // Ratios are taken within a round, whose parts ran side by side.
    let ratio = |i: usize, to: usize| median(rates[i].iter().zip(&rates[to]).map(|(a, b)| a / b).collect());
    println!("{:<38} {:>9} {:>8} {:>9}", "uncontended cycle, one thread", "cycles/s", "of raw", "of bare");
    for (i, (name, _)) in contestants.iter().enumerate() {
        println!("{name:<38} {:>9.0} {:>8.3} {:>9.3}", median(rates[i].clone()), ratio(i, 0), ratio(i, 1));
    }
}
