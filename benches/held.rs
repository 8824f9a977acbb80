//! What held locks cost: many of them, with a short ttl, renewed by their client's one thread.
//! `cargo bench --bench held`.

mod support;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, DistLockGuard, LockClient, LockOptions, redis};
use support::{Server, connect, url};

const HELD: usize = 10_000;
const TTL: Duration = Duration::from_secs(3);
const TIME: Duration = Duration::from_secs(30);

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let server = Server::start();
    let client = LockClient::open(url(server.port)).expect("an address");
    let options = LockOptions::new().ttl(TTL);
    let (memory, theirs) = (resident(), used_memory(server.port));
    let guards: Vec<DistLockGuard> = (0..HELD)
        .map(|i| {
            let lock = DistLock::with_options(&client, format!("bench:held:{i}"), &options).expect("options");
            lock.lock().expect("a lock")
        })
        .collect();
    let (memory, theirs) = (resident() - memory, used_memory(server.port) - theirs);
    thread::sleep(TTL);
    let (start, cpu) = (Instant::now(), cpu());
    let (reads, renewals, server_cpu) = (reads(server.port), scripts(server.port), server_cpu(server.port));
    thread::sleep(TIME);
    let periods = start.elapsed().as_secs_f64() / (TTL / 3).as_secs_f64();
    let cpu = (self::cpu() - cpu) / start.elapsed().as_secs_f64();
    let server_cpu = (self::server_cpu(server.port) - server_cpu) / start.elapsed().as_secs_f64();
    let reads = (self::reads(server.port) - reads) as f64 / periods;
    let renewals = (scripts(server.port) - renewals) as f64 / periods;
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    let held = HELD as f64;
    println!("{HELD} locks of ttl {TTL:?}, held for {TIME:?} and renewed each {:?}", TTL / 3);
    println!("lost                                     {lost}");
    println!("threads of this process                  {}", tasks());
    println!("renewals a period                        {renewals:.0}");
    println!("reads of the server a period             {reads:.0}, one for {:.0} held", held / reads);
    println!("of a core, this process and the server   {:.1} %, {:.1} %", 100.0 * cpu, 100.0 * server_cpu);
    println!(
        "processor time a lock and hour           {:.0} ms, {:.0} ms",
        3.6e6 * cpu / held,
        3.6e6 * server_cpu / held
    );
    println!("memory a lock, here and in the server    {:.0} B, {:.0} B", memory as f64 / held, theirs as f64 / held);
    assert_eq!(lost, 0);
}

/// Seconds of processor time of all threads of this process (Linux).
fn cpu() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let times = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
    times.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e9
}

fn tasks() -> usize {
    fs::read_dir("/proc/self/task").expect("Linux").count()
}

/// Bytes (Linux).
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("kB") * 1024
}

fn info(port: u16, section: &str, name: &str) -> f64 {
    let info: String = redis::cmd("INFO").arg(section).query(&mut connect(&url(port))).expect("INFO");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a figure");
    line.parse().expect("a number")
}

fn used_memory(port: u16) -> u64 {
    info(port, "memory", "used_memory") as u64
}

fn reads(port: u16) -> u64 {
    info(port, "stats", "total_reads_processed") as u64
}

fn server_cpu(port: u16) -> f64 {
    info(port, "cpu", "used_cpu_user") + info(port, "cpu", "used_cpu_sys")
}

fn scripts(port: u16) -> u64 {
    support::scripts(port)
}
