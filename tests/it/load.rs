//! Under load: what is held is kept, what is over leaves nothing.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, LockClient, LockOptions, Renew};

use crate::support::{Server, eventually, workers};

const LONG: Duration = Duration::from_secs(120);

/// How often the lock is acquired and released; a round that warms up has a twentieth.
const CYCLES: usize = 100_000;
const LOSSES: usize = 1_000;

/// What a process and its server have.
#[derive(Debug)]
struct Stock {
    threads: usize,
    files: usize,
    kilobytes: u64,
    connections: usize,
    channels: usize,
}

#[test]
fn nothing_is_left_of_a_hundred_thousand_cycles_and_a_thousand_losses() {
    let server = Server::start();
    // In a process of its own, which has nothing else.
    workers::ends_well(workers::start("wear", &server), LONG);
    let keys: Vec<String> = server.ask(&["KEYS", "*"]);
    assert!(!keys.is_empty());
    for key in keys {
        assert!(key.starts_with("distlock:fence:{wear"), "{key}");
        let pttl: i64 = server.ask(&["PTTL", &key]);
        assert!((1..=86_400_000).contains(&pttl), "{key}: {pttl}");
    }
}

pub(crate) fn wear(url: &str) {
    wear_out(url, CYCLES / 20, LOSSES / 20);
    let before = Stock::of(url);
    wear_out(url, CYCLES, LOSSES);
    let same = |stock: &Stock| {
        (stock.threads, stock.files, stock.connections, stock.channels)
            == (before.threads, before.files, before.connections, before.channels)
    };
    eventually(Duration::from_secs(10), "all ends with its client", || same(&Stock::of(url)));
    let after = Stock::of(url);
    // The allocator keeps some; a hundred bytes a cycle would be ten thousand.
    assert!(after.kilobytes < before.kilobytes + 5_000, "{before:?} {after:?}");
}

fn wear_out(url: &str, cycles: usize, losses: usize) {
    let (one, other) = (LockClient::open(url).unwrap(), LockClient::open(url).unwrap());
    let lock = DistLock::new(&one, "wear");
    for _ in 0..cycles * 7 / 10 {
        lock.lock().unwrap().unlock().unwrap();
    }
    // A name of its own for each: what is known of a key goes with it.
    for i in 0..cycles / 20 {
        drop(DistLock::new(&one, format!("wear {i}")).lock().unwrap());
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..cycles / 20 {
                    drop(lock.lock().unwrap());
                }
            });
        }
        for client in [&one, &other] {
            scope.spawn(move || {
                for _ in 0..cycles / 40 {
                    drop(DistLock::new(client, "wear in turn").lock().unwrap());
                }
            });
        }
    });
    lose(url, &one, losses);
}

/// A third deleted, a third taken by somebody else, a third expired.
fn lose(url: &str, client: &LockClient, losses: usize) {
    let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
    let told = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let theirs = std::sync::Arc::clone(&told);
    let options = LockOptions::new().on_lost(move |_| {
        theirs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    });
    let brief = options.clone().ttl(Duration::from_millis(20)).renew(Renew::Never);
    for i in 0..losses {
        let key = format!("wear lost {}", i % 50);
        let lock = |options| DistLock::with_options(client, &key, options).unwrap();
        match i % 3 {
            0 => {
                let guard = lock(&options).lock().unwrap();
                redis::cmd("DEL").arg(&key).exec(&mut redis).unwrap();
                guard.extend(Duration::ZERO).unwrap_err();
            }
            1 => {
                let guard = lock(&options).lock().unwrap();
                redis::cmd("SET").arg(&key).arg("another's").arg("PX").arg(1).exec(&mut redis).unwrap();
                guard.extend(Duration::ZERO).unwrap_err();
            }
            _ => {
                let guard = lock(&brief).lock().unwrap();
                assert!(guard.wait_lost_for(Duration::from_secs(5)));
            }
        }
    }
    eventually(LONG, "each loss is told", || told.load(std::sync::atomic::Ordering::SeqCst) == losses);
}

impl Stock {
    fn of(url: &str) -> Stock {
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let (threads, files) = (count("/proc/self/task"), count("/proc/self/fd"));
        let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
        let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut redis).unwrap();
        let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut redis).unwrap();
        Stock {
            threads,
            files,
            kilobytes: rss.trim().trim_end_matches(" kB").parse().unwrap(),
            connections: clients.lines().count(),
            channels: channels.len(),
        }
    }
}

#[test]
fn thousands_of_renewals_go_in_batches_of_at_least_fifty() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let ttl = Duration::from_secs(3);
    let options = LockOptions::new().ttl(ttl);
    let held = 2_000;
    let guards: Vec<_> = (0..held)
        .map(|i| DistLock::with_options(&client, format!("k{i}"), &options).unwrap().lock().unwrap())
        .collect();
    let figure = |name: &str| -> usize {
        let info: String = server.ask(&["INFO", "stats"]);
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok()).unwrap()
    };
    let (start, before) = (Instant::now(), figure("total_reads_processed"));
    thread::sleep(2 * ttl);
    // The server may read a batch in several pieces; and our own questions are there.
    let reads = figure("total_reads_processed") - before;
    let periods = start.elapsed().as_secs_f64() / (ttl / 3).as_secs_f64();
    assert!(guards.iter().all(distlock::DistLockGuard::is_valid));
    assert!(reads as f64 / periods <= held as f64 / 50.0, "{reads} reads in {periods:.1} periods");
}
