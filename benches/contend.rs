//! Threads of one process, and processes, that contend for one key, beside the raw limit and beside our
//! own scripts on a bare connection each, which spin with the same pauses. `cargo bench --bench contend`.
//!
//! For each: sections a second, commands a section, the share of the contender that got fewest and of the
//! one that got most (1 is fair); of threads, too, the time from the call of a release to the lock in
//! another thread (median, 99th percentile). `handoff.rs` has that of processes.

mod support;

use std::{
    hash::{BuildHasher, RandomState},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, LockClient, redis};
use support::{Bare, Raw, Server, connect, url};

const TIME: Duration = Duration::from_secs(2);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, kind, port, number] = &arguments[..]
        && kind != "--bench"
    {
        let port = port.parse().expect("a port");
        let sections = match kind.as_str() {
            "raw" => raw_sections(port),
            "bare" => bare_sections(port),
            _ => lock_sections(&client(port)),
        };
        return report(port, number, sections.len() as u64);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    println!(
        "{:<34} {:>11} {:>10} {:>8} {:>8} {:>8} {:>8}",
        "one key, sections of no length", "sections/s", "commands", "fewest", "most", "p50 µs", "p99 µs"
    );
    for threads in [1, 2, 8, 16, 64] {
        row(&format!("raw, {threads} threads"), |port| in_threads(threads, || raw_sections(port)));
        row(&format!("bare scripts, {threads} threads"), |port| in_threads(threads, || bare_sections(port)));
        row(&format!("DistLock, {threads} threads"), |port| {
            let client = client(port);
            in_threads(threads, || lock_sections(&client))
        });
    }
    for processes in [1, 2, 4, 8, 16] {
        row(&format!("raw, {processes} processes"), |port| in_processes(processes, "raw", port));
        row(&format!("bare scripts, {processes} processes"), |port| in_processes(processes, "bare", port));
        row(&format!("DistLock, {processes} processes"), |port| in_processes(processes, "lock", port));
    }
}

/// What the contenders of one measurement did.
struct Shares {
    sections: Vec<u64>,
    /// From thread to thread, in ns, sorted.
    delays: Vec<u64>,
}

/// One measurement on a server of its own.
fn row(name: &str, contend: impl FnOnce(u16) -> Shares) {
    let server = Server::start();
    let Shares { sections, delays } = contend(server.port);
    let all: u64 = sections.iter().sum();
    let fair = all as f64 / sections.len() as f64;
    let share = |n: Option<&u64>| n.map_or(0.0, |&n| n as f64 / fair);
    let delay = |part: usize| match delays.get(delays.len() * part / 100) {
        Some(&nanos) => format!("{:.1}", nanos as f64 / 1e3),
        None => "-".to_owned(),
    };
    println!(
        "{name:<34} {:>11.0} {:>10.2} {:>8.2} {:>8.2} {:>8} {:>8}",
        all as f64 / TIME.as_secs_f64(),
        calls(server.port) as f64 / all as f64,
        share(sections.iter().min()),
        share(sections.iter().max()),
        delay(50),
        delay(99),
    );
}

/// Calls that acquire or release, as the server counted them.
fn calls(port: u16) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connect(&url(port))).expect("INFO");
    let count = |command: &str| -> u64 {
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls="))).unwrap_or("0");
        line.split(',').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    // A SET is a call of its own in raw; in our scripts, which ask for the time, it is a part.
    let sets = if count("time") > 0 { 0 } else { count("set") };
    count("evalsha") + count("eval") + sets
}

fn client(port: u16) -> LockClient {
    LockClient::open(url(port)).expect("an address")
}

fn in_threads(threads: usize, sections: impl Fn() -> Vec<Section> + Sync) -> Shares {
    let logs: Vec<Vec<Section>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(&sections)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let sections = logs.iter().map(|log| log.len() as u64).collect();
    let mut all: Vec<(usize, Section)> = logs
        .into_iter()
        .enumerate()
        .flat_map(|(thread, log)| log.into_iter().map(move |entry| (thread, entry)))
        .collect();
    all.sort_by_key(|(_, section)| section.acquired);
    let other = all.windows(2).filter(|pair| pair[0].0 != pair[1].0);
    let mut delays: Vec<u64> =
        other.map(|pair| pair[1].1.acquired.saturating_duration_since(pair[0].1.released).as_nanos() as u64).collect();
    delays.sort_unstable();
    Shares { sections, delays }
}

fn in_processes(processes: usize, kind: &str, port: u16) -> Shares {
    let program = std::env::current_exe().expect("this program");
    let start = |number: usize| -> Child {
        let mut command = Command::new(&program);
        command.args([kind, &port.to_string(), &number.to_string()]).stdout(Stdio::null());
        command.spawn().expect("a process")
    };
    let children: Vec<Child> = (0..processes).map(start).collect();
    children.into_iter().for_each(|mut child| assert!(child.wait().expect("an end").success()));
    let shares: Vec<u64> = redis::cmd("HVALS").arg("shares").query(&mut connect(&url(port))).expect("HVALS");
    assert_eq!(shares.len(), processes);
    Shares { sections: shares, delays: Vec::new() }
}

fn report(port: u16, number: &str, sections: u64) {
    redis::cmd("HSET").arg("shares").arg(number).arg(sections).exec(&mut connect(&url(port))).expect("HSET");
}

fn lock_sections(client: &LockClient) -> Vec<Section> {
    let lock = DistLock::new(client, "bench:lock");
    log(|| {
        let guard = lock.lock().expect("the lock");
        let acquired = Instant::now();
        let released = Instant::now();
        guard.unlock().expect("a release");
        Section { acquired, released }
    })
}

fn raw_sections(port: u16) -> Vec<Section> {
    spinning(&mut Raw::new(&url(port)))
}

fn bare_sections(port: u16) -> Vec<Section> {
    spinning(&mut Bare::new(&url(port), "bench:bare"))
}

/// One connection that tries and releases.
trait Contender {
    fn acquire(&mut self, token: &str) -> bool;
    fn release(&mut self, token: &str);
}

impl Contender for Raw {
    fn acquire(&mut self, token: &str) -> bool {
        Raw::acquire(self, "bench:raw", token)
    }

    fn release(&mut self, token: &str) {
        Raw::release(self, "bench:raw", token);
    }
}

impl Contender for Bare {
    fn acquire(&mut self, token: &str) -> bool {
        Bare::acquire(self, token)
    }

    fn release(&mut self, token: &str) {
        Bare::release(self, token);
    }
}

/// As long and as varied as the library's own.
fn token() -> String {
    format!("d0.0123456789abcdef0123456789abcdef-{}-{:?}", std::process::id(), thread::current().id())
}

/// The same pauses as the library's: three attempts at once, then 2 to 50 ms with decorrelated jitter.
fn spinning(contender: &mut dyn Contender) -> Vec<Section> {
    let token = token();
    let mut random = RandomState::new().hash_one(0);
    log(|| {
        let (mut spins, mut pause) = (0, 0);
        while !contender.acquire(&token) {
            if spins < 3 {
                spins += 1;
                thread::yield_now();
                continue;
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let most = (pause * 3).clamp(2_000, 50_000);
            pause = 2_000 + (random >> 33) % (most - 2_000 + 1);
            thread::sleep(Duration::from_micros(pause));
        }
        let acquired = Instant::now();
        let released = Instant::now();
        contender.release(&token);
        Section { acquired, released }
    })
}

/// When the lock was there, and when its release was called.
struct Section {
    acquired: Instant,
    released: Instant,
}

fn log(mut section: impl FnMut() -> Section) -> Vec<Section> {
    let end = Instant::now() + TIME;
    let mut log = Vec::new();
    while Instant::now() < end {
        log.push(section());
    }
    log
}
