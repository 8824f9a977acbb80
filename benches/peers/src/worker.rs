//! A contestant of Rust, obeying the lines of `process.rs` on standard input.

use std::{
    io::{Write, stdin, stdout},
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// One library in one process.
pub(crate) trait Contestant {
    /// Acquires and releases in one thread: how often, and how long that took.
    fn cycle(&mut self, time: Duration) -> (u64, Duration);
    /// Contends in several threads, or tasks: the sections that each ended in time.
    fn sections(&mut self, threads: usize, time: Duration) -> Vec<u64>;
    fn take(&mut self);
    fn give(&mut self);
}

/// What one thread has of a synchronous library.
pub(crate) trait Lock {
    fn take(&mut self);
    fn give(&mut self);
}

/// A synchronous library: `open` makes what a further thread needs.
pub(crate) struct Blocking<L, F> {
    open: F,
    lock: L,
}

impl<L: Lock, F: Fn() -> L> Blocking<L, F> {
    pub(crate) fn new(open: F) -> Blocking<L, F> {
        Blocking { lock: open(), open }
    }
}

impl<L: Lock + Send, F: Fn() -> L> Contestant for Blocking<L, F> {
    fn cycle(&mut self, time: Duration) -> (u64, Duration) {
        let start = Instant::now();
        (count(&mut self.lock, start + time), start.elapsed())
    }

    fn sections(&mut self, threads: usize, time: Duration) -> Vec<u64> {
        let locks: Vec<L> = (0..threads).map(|_| (self.open)()).collect();
        let end = Instant::now() + time;
        thread::scope(|scope| {
            let start = |mut lock: L| scope.spawn(move || count(&mut lock, end));
            let threads: Vec<_> = locks.into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    fn take(&mut self) {
        self.lock.take();
    }

    fn give(&mut self) {
        self.lock.give();
    }
}

fn count(lock: &mut impl Lock, end: Instant) -> u64 {
    let mut sections = 0;
    loop {
        lock.take();
        lock.give();
        if Instant::now() >= end {
            return sections;
        }
        sections += 1;
    }
}

pub(crate) fn serve(mut contestant: Box<dyn Contestant>) {
    say("ready");
    for line in stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["cycle", ms] => {
                let (cycles, took) = contestant.cycle(millis(ms));
                say(&format!("{cycles} {}", took.as_nanos()));
            }
            ["sections", threads, ms] => {
                let counts = contestant.sections(threads.parse().expect("a number"), millis(ms));
                say(&counts.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
            }
            ["take"] => {
                contestant.take();
                say(&now().to_string());
            }
            ["give"] => {
                let called = now();
                contestant.give();
                say(&called.to_string());
            }
            _ => panic!("what is {line:?}?"),
        }
    }
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("milliseconds"))
}

/// The clock that all processes of the machine share, whatever their language.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn say(line: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody who listens");
}
