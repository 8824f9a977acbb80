//! A random run: processes that contend, while their servers, connections and keys meet every fault in
//! an order that a seed decides. All referees judge at the end.
//!
//! `DISTLOCK_SEED` replays the faults and the options of a run; `DISTLOCK_RANDOM_SECONDS` is how long
//! the faults last, 45 without it.

use std::{
    path::PathBuf,
    process::Child,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::contender::{IO, KEYS, LONGEST_TTL, THREADS};
use super::plan::{self, Fault, WORKERS};
use crate::support::referees::{self, Flag, foreign::OPERATOR};
use crate::support::story::{self, Scribe, Stamp, now};
use crate::support::witness::{self, Witness};
use crate::support::{Proxy, Server, resource, workers};

/// What a stall of the machine may add to a call: twelve threads and two servers share it.
const SLACK: Duration = Duration::from_millis(1000);
/// A waiter in calm: a lease of the dead, a pause, a call; and a turn for each that waits with it.
const PATIENCE: Duration = Duration::from_millis(600 + 50 + 150 + 100 * (WORKERS * THREADS) as u64 + 1000);

/// Where a lock is renamed to.
const ELSEWHERE: &str = "elsewhere";

#[test]
fn a_random_run_breaks_no_promise() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    let seed = number("DISTLOCK_SEED").unwrap_or(since.subsec_nanos().into());
    let length = Duration::from_secs(number("DISTLOCK_RANDOM_SECONDS").unwrap_or(45));
    println!("DISTLOCK_SEED={seed}");
    let mut field = Field::open(seed);
    let start = Instant::now();
    for (at, fault) in plan::of(seed, length) {
        thread::sleep((start + at).saturating_duration_since(Instant::now()));
        field.suffer(fault);
    }
    let folder = field.folder.clone();
    let flags = field.judge();
    let first: Vec<String> = flags.iter().take(10).map(Flag::to_string).collect();
    assert!(
        flags.is_empty(),
        "DISTLOCK_SEED={seed}: {} objections; what happened is in {}:\n{}",
        flags.len(),
        folder.display(),
        first.join("\n")
    );
    let _ = std::fs::remove_dir_all(&folder);
}

/// Where it happens.
struct Field {
    server: Server,
    resource: Server,
    witness: Witness,
    proxies: Vec<Proxy>,
    workers: Vec<Worker>,
    scribe: Scribe,
    folder: PathBuf,
}

struct Worker {
    child: Child,
    stopped: Option<Stamp>,
    killed: bool,
}

impl Field {
    fn open(seed: u64) -> Field {
        let folder = std::env::temp_dir().join(format!("distlock-run-{}-{seed}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (server, resource) = (Witness::server(), Server::start());
        let witness = Witness::of(&server, &KEYS);
        let proxies: Vec<Proxy> = (0..WORKERS).map(|_| Proxy::to(server.port())).collect();
        let start = |(i, proxy): (usize, &Proxy)| {
            let (seed, story) = (seed.wrapping_add(i as u64), folder.join(format!("worker-{i}")));
            let task = format!("contend {seed} {} {}", story.display(), resource.url());
            Worker { child: workers::start_at(&task, &proxy.url()), stopped: None, killed: false }
        };
        let workers = proxies.iter().enumerate().map(start).collect();
        let scribe = Scribe::to(&folder.join("faults"));
        Field { server, resource, witness, proxies, workers, scribe, folder }
    }

    fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::Stop(i) => self.stop(i),
            Fault::Wake(i) => self.wake(i),
            Fault::Kill(i) => self.kill(i),
            Fault::Freeze(d) => {
                self.server.pause();
                thread::sleep(d);
                self.server.resume();
            }
            Fault::Restart => self.restart(),
            Fault::CutAll => witness::kill_connections(&self.server),
            Fault::FlushScripts => self.server.ask(&["SCRIPT", "FLUSH"]),
            Fault::FlushAll => self.lose(None, |server| server.ask(&["FLUSHALL"])),
            Fault::Delete(key) => self.lose(Some(key), |server| operate(server, &["DEL", key])),
            Fault::Overwrite(key) => {
                self.lose(Some(key), |server| operate(server, &["SET", key, "other", "PX", "200"]))
            }
            Fault::Rename(key) => self.lose(Some(key), |server| operate(server, &["RENAME", key, ELSEWHERE])),
            Fault::Persist(key) => operate(&self.server, &["PERSIST", key]),
            Fault::Tidy(key) => self.tidy(key),
            Fault::Fill => self.server.ask(&["CONFIG", "SET", "maxmemory", "1"]),
            Fault::Empty => self.server.ask(&["CONFIG", "SET", "maxmemory", "0"]),
            Fault::Meet(i, way, fate, n) => self.proxies[i].rule(way, fate, n, |_| true),
            Fault::Delay(i, way, by) => self.proxies[i].delay(way, by),
            Fault::Block(i, way) => self.proxies[i].block(way),
            Fault::Heal(i) => self.proxies[i].heal(),
        }
    }

    /// The server forgets a key, or all.
    fn lose(&self, key: Option<&str>, how: impl FnOnce(&Server)) {
        let from = now();
        how(&self.server);
        self.scribe.forgot(key, from);
    }

    /// What an operator does with a key that was left without a ttl.
    fn tidy(&self, key: &str) {
        let source = "return redis.call('PTTL', ARGV[1]) == -1 and redis.call('DEL', ARGV[1]) or 0";
        let from = now();
        let deleted: i64 = self.server.ask(&["EVAL", &format!("{OPERATOR}{source}"), "0", key]);
        if deleted > 0 {
            self.scribe.forgot(Some(key), from);
        }
    }

    fn restart(&mut self) {
        // Nobody comes in before the witness is there.
        self.proxies.iter().for_each(|proxy| proxy.refuse(true));
        let from = now();
        self.server.kill();
        self.server.restart();
        self.scribe.forgot(None, from);
        self.witness.watch_again(&self.server);
        self.proxies.iter().for_each(|proxy| proxy.refuse(false));
    }

    fn stop(&mut self, i: usize) {
        let worker = &mut self.workers[i];
        if !worker.killed && worker.stopped.is_none() {
            worker.stopped = Some(now());
            workers::signal(&worker.child, "STOP");
        }
    }

    fn wake(&mut self, i: usize) {
        let worker = &mut self.workers[i];
        if let Some(from) = worker.stopped.take() {
            workers::signal(&worker.child, "CONT");
            self.scribe.stopped(worker.child.id(), from);
        }
    }

    fn kill(&mut self, i: usize) {
        self.wake(i);
        let worker = &mut self.workers[i];
        worker.child.kill().expect("a kill");
        worker.child.wait().expect("an end");
        worker.killed = true;
        self.scribe.killed(worker.child.id());
    }

    /// Ends all faults and the work, and lets every referee judge.
    fn judge(mut self) -> Vec<Flag> {
        self.proxies.iter().for_each(Proxy::heal);
        self.suffer(Fault::Empty);
        (0..WORKERS).for_each(|i| self.wake(i));
        KEYS.iter().chain([&ELSEWHERE]).for_each(|key| self.tidy(key));
        self.scribe.calm();
        self.workers.iter_mut().for_each(|worker| drop(worker.child.stdin.take()));
        for worker in self.workers.drain(..).filter(|worker| !worker.killed) {
            workers::ends_well(worker.child, Duration::from_secs(30));
        }
        self.proxies.clear();
        let story = story::read(&self.folder);
        let left = witness::left(&self.server, story.threads.clone(), 2 * LONGEST_TTL + IO);
        let mut flags = self.witness.flags(&self.server);
        flags.extend(referees::holds_never_overlap(&story));
        flags.extend(referees::fences_grow(&story));
        flags.extend(referees::nothing_is_left(&left));
        flags.extend(referees::calls_end_in_time(&story, SLACK, PATIENCE));
        for number in KEYS {
            let accepted = resource::accepted(&self.resource, number);
            // Referees that see nothing object to nothing.
            assert!(accepted.len() > 20, "{} updates of {number}", accepted.len());
            flags.extend(referees::no_update_is_lost(&accepted));
        }
        println!("{} holds, {} calls, {} losses", story.holds.len(), story.calls.len(), story.losses.len());
        flags
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

/// One command by an operator, who may do what he likes. That there is no such key, or no memory, is no
/// matter.
fn operate(server: &Server, parts: &[&str]) {
    let source = format!("{OPERATOR}return redis.pcall(unpack(ARGV))");
    let mut call = redis::cmd("EVAL");
    let _: redis::RedisResult<()> = call.arg(source).arg(0).arg(parts).query(&mut server.connection());
}
