//! From one process to the next: all always want one key, beside the same protocol over raw sockets and
//! beside spinning, in the same run. `cargo bench --bench handoff`.
//!
//! For each: the time from the call of a release in one process to the lock acquired in another (median,
//! 99th percentile), scripts a section, the share of the process that got fewest and of the one that
//! got most (1 is fair), and the longest wait. Then the same where some or all may not be told, or tell.
//! `HANDOFF_SECONDS` is how long each row takes; 3 without it.

mod support;

use std::{
    hash::{BuildHasher, RandomState},
    io::{Read, Write},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use distlock::{DistLock, LockClient, LockOptions, Wait, redis};
use support::{Server, connect, queue::Queued, scripts};

const KEY: &str = "bench:handoff";
const PROCESSES: [usize; 5] = [2, 4, 8, 16, 64];
const KINDS: [(&str, &str); 3] =
    [("raw sockets, same scripts", "raw"), ("DistLock, in turn", "turn"), ("DistLock, spinning", "spin")];
/// How long a section takes: nothing, a millisecond, or any time up to two.
#[derive(Clone, Copy)]
enum Hold {
    Nothing,
    Millisecond,
    UpToTwo,
}

/// Users who lack one right, for waiters who cannot be told and holders who cannot tell.
const LACKING: [(&str, &str); 3] = [("nosubscribe", "-subscribe"), ("nopubsub", "-pubsub"), ("nopublish", "-publish")];
/// Of 8 processes, so many are such a user.
const DEGRADED: [(&str, usize); 9] = [
    ("default", 0),
    ("nosubscribe", 1),
    ("nosubscribe", 4),
    ("nosubscribe", 8),
    ("nopubsub", 2),
    ("nopubsub", 8),
    ("nopublish", 1),
    ("nopublish", 4),
    ("nopublish", 8),
];

/// One section, in ns of a clock that all processes share.
struct Section {
    process: usize,
    asked: u64,
    acquired: u64,
    released: u64,
}

/// Who contends, as which user.
type Contender = (&'static str, &'static str);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, kind, user, port, hold, end] = &arguments[..] {
        let hold = Hold::named(hold);
        return contend(kind, user, port.parse().expect("a port"), hold, end.parse().expect("a time"));
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let seconds = std::env::var("HANDOFF_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let time = Duration::from_secs(seconds);
    println!(
        "{:<28} {:>9} {:>7} {:>10} {:>8} {:>8} {:>8} {:>7} {:>7} {:>10}",
        "one key, processes",
        "processes",
        "hold",
        "sections/s",
        "p50 µs",
        "p99 µs",
        "scripts",
        "fewest",
        "most",
        "wait ms"
    );
    for hold in [Hold::Nothing, Hold::Millisecond] {
        for processes in PROCESSES {
            for (name, kind) in KINDS {
                row(name, &vec![(kind, "default"); processes], hold, time);
            }
        }
    }
    for (user, count) in DEGRADED {
        let name = if count == 0 { "all may do all".to_owned() } else { format!("{count} of 8 {user}") };
        let contenders: Vec<Contender> = (0..8).map(|i| ("turn", if i < count { user } else { "default" })).collect();
        row(&name, &contenders, Hold::UpToTwo, time);
    }
}

/// One measurement on a server of its own.
fn row(name: &str, contenders: &[Contender], hold: Hold, time: Duration) {
    let server = Server::start();
    let processes = contenders.len();
    for (user, right) in LACKING {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg(user).arg(&["on", "nopass", "~*", "&*", "+@all", right]);
        command.exec(&mut connect(&server.url())).expect("ACL SETUSER");
    }
    // All have started by then.
    let start = now() + 300_000_000 + 20_000_000 * processes as u64;
    let end = start + time.as_nanos() as u64;
    let children: Vec<Child> = contenders.iter().map(|contender| child(*contender, server.port, hold, end)).collect();
    thread::sleep(Duration::from_nanos(start.saturating_sub(now())));
    let before = scripts(server.port);
    let mut sections = Vec::new();
    let logs: Vec<_> = children.into_iter().map(|child| thread::spawn(move || log_of(child))).collect();
    thread::sleep(Duration::from_nanos(end.saturating_sub(now())));
    let scripts = scripts(server.port) - before;
    for (process, log) in logs.into_iter().enumerate() {
        for [asked, acquired, released] in log.join().expect("no panic") {
            sections.push(Section { process, asked, acquired, released });
        }
    }
    sections.retain(|section| (start..end).contains(&section.acquired));
    sections.sort_by_key(|section| section.acquired);
    assert!(sections.len() > 2 * processes, "{name}: hardly a section");
    let mut delays: Vec<u64> = sections
        .windows(2)
        .filter(|pair| pair[0].process != pair[1].process)
        .map(|pair| pair[1].acquired.saturating_sub(pair[0].released) / 1000)
        .collect();
    delays.sort_unstable();
    let at = |part: usize| delays.get(delays.len() * part / 100).copied().unwrap_or(0);
    let shares: Vec<usize> =
        (0..processes).map(|process| sections.iter().filter(|section| section.process == process).count()).collect();
    let share = |n: usize| n as f64 * processes as f64 / sections.len() as f64;
    let longest = sections.iter().map(|section| section.acquired - section.asked).max().unwrap_or(0);
    println!(
        "{name:<28} {processes:>9} {:>7} {:>10.0} {:>8} {:>8} {:>8.2} {:>7.2} {:>7.2} {:>10.1}",
        hold.name(),
        sections.len() as f64 / time.as_secs_f64(),
        at(50),
        at(99),
        scripts as f64 / sections.len() as f64,
        share(shares.iter().copied().min().unwrap_or(0)),
        share(shares.iter().copied().max().unwrap_or(0)),
        longest as f64 / 1e6,
    );
}

impl Hold {
    fn name(self) -> &'static str {
        match self {
            Hold::Nothing => "0 ms",
            Hold::Millisecond => "1 ms",
            Hold::UpToTwo => "0-2 ms",
        }
    }

    fn named(name: &str) -> Hold {
        let all = [Hold::Nothing, Hold::Millisecond, Hold::UpToTwo];
        all.into_iter().find(|hold| hold.name() == name).expect("a hold")
    }

    fn time(self) -> Duration {
        match self {
            Hold::Nothing => Duration::ZERO,
            Hold::Millisecond => Duration::from_millis(1),
            Hold::UpToTwo => Duration::from_micros(RandomState::new().hash_one(0) % 2000),
        }
    }

    /// Busy, as a section is; then the time at which its release is called.
    fn pass(self) -> u64 {
        let end = Instant::now() + self.time();
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        now()
    }
}

fn child((kind, user): Contender, port: u16, hold: Hold, end: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([kind, user, &port.to_string(), hold.name(), &end.to_string()]);
    // Who lacks a right says so in its log, which is not read here.
    command.stdout(Stdio::piped()).spawn().expect("a process")
}

fn log_of(mut child: Child) -> Vec<[u64; 3]> {
    let mut bytes = Vec::new();
    child.stdout.take().expect("piped").read_to_end(&mut bytes).expect("its log");
    assert!(child.wait().expect("an end").success());
    let numbers: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8"))).collect();
    numbers.chunks_exact(3).map(|section| [section[0], section[1], section[2]]).collect()
}

fn contend(kind: &str, user: &str, port: u16, hold: Hold, end: u64) {
    if kind == "raw" {
        let mut queued = Queued::new(port, KEY);
        return sections(end, || {
            queued.acquire();
            let (acquired, released) = (now(), hold.pass());
            queued.release();
            (acquired, released)
        });
    }
    let client = LockClient::open(format!("redis://{user}:any@127.0.0.1:{port}/")).expect("an address");
    let wait = if kind == "spin" { Wait::Spin } else { Wait::InTurn };
    let lock = DistLock::with_options(&client, KEY, &LockOptions::new().wait(wait)).expect("options");
    sections(end, || {
        let guard = lock.lock().expect("the lock");
        let (acquired, released) = (now(), hold.pass());
        guard.unlock().expect("a release");
        (acquired, released)
    });
}

fn sections(end: u64, mut section: impl FnMut() -> (u64, u64)) {
    let mut log = Vec::new();
    loop {
        let asked = now();
        if asked >= end {
            break;
        }
        let (acquired, released) = section();
        log.extend([asked, acquired, released].into_iter().flat_map(u64::to_ne_bytes));
    }
    std::io::stdout().write_all(&log).expect("a pipe");
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64
}
