//! A worker process that contends for locks in every way that the options allow, and writes down what
//! it had and when. It decides by a seed; it judges nothing but the word for what failed.

use std::{
    io::Read,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, DistLockGuard, Error, ErrorKind, LockClient, LockOptions, Renew};

use crate::support::dice::Dice;
use crate::support::resource::Resource;
use crate::support::story::{Hold, Scribe, Stamp, nanos, now};

pub(crate) const KEYS: [&str; 2] = ["north", "south"];
/// How long a call to Redis may take.
pub(crate) const IO: Duration = Duration::from_millis(150);
pub(crate) const LONGEST_TTL: Duration = Duration::from_millis(600);
pub(crate) const THREADS: usize = 3;

const TTLS: [Duration; 3] = [Duration::from_millis(300), Duration::from_millis(450), LONGEST_TTL];
/// How often a holder looks at its guard.
const LOOK: Duration = Duration::from_millis(8);

/// What one thread contends with.
struct Contender<'a> {
    kept: &'a LockClient,
    /// Of guards that are never dropped.
    leaked: &'a LockClient,
    resource: Resource,
    scribe: &'a Scribe,
    dice: Dice,
    over: &'a AtomicBool,
}

/// Contends until standard input ends. The orders: a seed, the file for what happens, the resource.
pub(crate) fn contend(orders: &str, url: &str) {
    let [seed, story, resource] = orders.split(' ').collect::<Vec<_>>()[..] else { panic!("orders: {orders}") };
    let seed: u64 = seed.parse().expect("a seed");
    let scribe = Scribe::to(Path::new(story));
    let over = AtomicBool::new(false);
    let client = |name: &str| ClientOptions::new().name(name).io_timeout(IO).open(url).unwrap();
    let (kept, leaked) = (client("kept"), client("leaked"));
    thread::scope(|scope| {
        for i in 0..THREADS as u64 {
            let (kept, leaked, scribe, over) = (&kept, &leaked, &scribe, &over);
            let (resource, dice) = (Resource::at(resource), Dice::of(seed.wrapping_add(i << 32)));
            scope.spawn(move || {
                // A panic here must not leave the others waiting for an order that nobody gives.
                Contender { kept, leaked, resource, scribe, dice, over }.run();
            });
        }
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Relaxed);
    });
    drop(kept);
    watchdogs_left().iter().for_each(|name| scribe.thread_left(name));
}

/// Threads of clients that are gone, once they had their time; known by the start of their names.
fn watchdogs_left() -> Vec<String> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        let left: Vec<String> = names.filter(|name| name.starts_with("distlock-dog k")).collect();
        if left.is_empty() || Instant::now() >= end {
            return left;
        }
        thread::sleep(LOOK);
    }
}

impl Contender<'_> {
    fn run(&mut self) {
        while !self.is_over() {
            self.round();
            thread::sleep(self.dice.millis(0, 20));
        }
    }

    fn round(&mut self) {
        let (key, ttl) = (self.dice.one_of(&KEYS), self.dice.one_of(&TTLS));
        let leak = self.dice.below(40) == 0;
        let renew = match self.dice.below(4) {
            _ if leak => Renew::Never,
            0 => Renew::Never,
            1 => Renew::AtMost(self.dice.millis(200, 900)),
            _ => Renew::WhileHeld,
        };
        let options = LockOptions::new().ttl(ttl).renew(renew);
        let lock = DistLock::with_options(if leak { self.leaked } else { self.kept }, key, &options).unwrap();
        let asked = now();
        let Some(guard) = self.acquire(&lock) else { return };
        let hold = self.won(&guard, asked, ttl);
        self.section(&guard, &hold);
        self.end(guard, &hold, leak);
    }

    fn acquire(&mut self, lock: &DistLock) -> Option<DistLockGuard> {
        let won = match self.dice.below(4) {
            0 => self.timed("try_lock", Some(IO), || lock.try_lock()),
            1 => self.timed("lock", None, || lock.lock()),
            _ => {
                let d = self.dice.millis(0, 800);
                self.timed("try_lock_for", Some(d + IO), || lock.try_lock_for(d))
            }
        };
        won.inspect_err(fits_a_fault).ok()
    }

    /// Writes down what it had in hand: what came before the look is the least that can be true.
    fn won(&self, guard: &DistLockGuard, asked: Stamp, ttl: Duration) -> String {
        let acquired = now();
        let valid = acquired + nanos(guard.remaining());
        self.scribe.won(&Hold {
            key: guard.key().to_owned(),
            token: guard.token().to_owned(),
            fence: guard.fence(),
            // Of a lease that was granted, or passed on, no more is known.
            sent: asked,
            acquired,
            valid,
            ttl: nanos(ttl),
            ..Hold::default()
        })
    }

    /// Read, work, write; sometimes longer than the lease.
    fn section(&mut self, guard: &DistLockGuard, hold: &str) {
        let number = self.resource.read(guard.key(), guard.fence());
        let work = if self.dice.below(10) == 0 { self.dice.millis(300, 1500) } else { self.dice.millis(0, 25) };
        let extend = self.dice.below(6) == 0;
        let end = Instant::now() + work;
        while !self.is_over() && Instant::now() < end {
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
            self.look(guard, hold);
        }
        if extend {
            // By less than every ttl. It may be lost, or Redis out of reach: the next look tells.
            let _ = self.timed("extend", Some(IO), || guard.extend(Duration::from_millis(200)));
            self.look(guard, hold);
        }
        if let Some(number) = number {
            // Also when it is lost: the fence is what keeps this from doing harm.
            self.resource.write(guard.key(), guard.fence(), number + 1);
        }
    }

    fn look(&self, guard: &DistLockGuard, hold: &str) {
        let at = now();
        match guard.remaining() {
            Duration::ZERO => self.scribe.lost(hold, at),
            left => self.scribe.valid(hold, at + nanos(left)),
        }
    }

    fn end(&mut self, guard: DistLockGuard, hold: &str, leak: bool) {
        if leak {
            std::mem::forget(guard);
            return;
        }
        self.look(&guard, hold);
        self.scribe.release(hold);
        if self.dice.below(2) == 0 {
            self.timed("drop", Some(IO), || drop(guard));
        } else if let Err(e) = self.timed("unlock", Some(IO), || guard.unlock()) {
            assert_eq!(e.kind(), ErrorKind::Lost, "{e:?}");
        }
    }

    fn timed<T>(&self, what: &str, bound: Option<Duration>, call: impl FnOnce() -> T) -> T {
        let asked = self.scribe.asked(what, bound);
        let answer = call();
        self.scribe.answered(&asked);
        answer
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
}

/// No fault of the run is a reason for another word.
fn fits_a_fault(e: &Error) {
    let fits = e.is_transient() || e.is_taken();
    assert!(fits, "{e:?}");
}
