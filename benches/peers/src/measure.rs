//! The run: every contestant in processes of its own on one private server, measured in turn, round by
//! round, so that what disturbs the machine for a while hits all alike.

use std::{
    hash::{BuildHasher, RandomState},
    thread,
    time::{Duration, Instant},
};

use crate::{
    contestants::{ALL, Contestant},
    machine,
    process::Process,
    results::{Results, Row},
    support::{Server, median},
};

const CYCLE_ROUNDS: usize = 21;
const CYCLE_MS: u64 = 200;
const SECTION_ROUNDS: usize = 7;
const SECTION_MS: u64 = 500;
const THREADS: usize = 8;
const HANDOFFS: usize = 100;
/// Who pauses for long between attempts is handed over to fewer times.
const HANDOFF_TIME: Duration = Duration::from_secs(30);
/// Long enough for the other process to have begun to wait.
const SHORTEST_HOLD: Duration = Duration::from_millis(5);

/// A contestant whose two processes are up, and what it did so far.
struct Entry {
    contestant: &'static Contestant,
    processes: [Process; 2],
    /// Cycles, and sections, a second, round by round.
    cycles: Vec<f64>,
    sections: Vec<f64>,
    /// The part of the thread that got fewest, of an equal part.
    fewest: Vec<f64>,
    row: Row,
}

pub(crate) fn all(command: &str) -> Results {
    let server = Server::start();
    let before = machine::load();
    let mut entries: Vec<Entry> = ALL.iter().filter_map(|contestant| Entry::start(contestant, server.port)).collect();
    each_in_turn(&mut entries, CYCLE_ROUNDS + 1, Entry::cycle);
    each_in_turn(&mut entries, SECTION_ROUNDS, Entry::sections);
    each_in_turn(&mut entries, 1, Entry::handoffs);
    compare(&mut entries);
    let captions = vec![
        command.to_owned(),
        format!("{}, {}", machine::description(), machine::server_version(server.port)),
        format!("{}, load {before} at the start, {} at the end", machine::date(), machine::load()),
    ];
    Results { captions, rows: entries.into_iter().map(|entry| entry.row).collect() }
}

/// Who fails is named and left out from there on; its figures so far stand.
fn each_in_turn(
    entries: &mut [Entry],
    rounds: usize,
    mut measure: impl FnMut(&mut Entry, usize) -> Result<(), String>,
) {
    let mut failed = vec![false; entries.len()];
    for round in 0..rounds {
        for turn in 0..entries.len() {
            let i = (round + turn) % entries.len();
            if failed[i] {
                continue;
            }
            if let Err(error) = measure(&mut entries[i], round) {
                eprintln!("{} {error}", entries[i].contestant.name);
                failed[i] = true;
            }
        }
    }
}

/// Ratios are taken within a round, whose parts ran side by side: the median of them.
fn ratio(rounds: &[f64], to: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = rounds.iter().zip(to).map(|(a, b)| a / b).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

fn rates_of(entries: &[Entry], name: &str, rounds: impl Fn(&Entry) -> &Vec<f64>) -> Vec<f64> {
    entries.iter().find(|entry| entry.contestant.name == name).map(|entry| rounds(entry).clone()).unwrap_or_default()
}

/// What the rounds of all have to be there for.
fn compare(entries: &mut [Entry]) {
    let raw = rates_of(entries, "raw", |entry| &entry.cycles);
    let ours = rates_of(entries, "distlock", |entry| &entry.sections);
    for Entry { cycles, sections, fewest, row, .. } in entries {
        let middle = |rounds: &Vec<f64>| (!rounds.is_empty()).then(|| median(rounds.clone()));
        row.cycles_a_second = middle(cycles);
        row.of_raw = ratio(cycles, &raw);
        row.sections_a_second = middle(sections);
        row.sections_of_ours = ratio(sections, &ours);
        row.fewest = middle(fewest);
    }
}

impl Entry {
    fn start(contestant: &'static Contestant, port: u16) -> Option<Entry> {
        let process = || match contestant.command(port).map(Process::start) {
            None => Err(format!("is skipped: {} or its packages are not to be had here", contestant.language())),
            Some(started) => started,
        };
        match process().and_then(|first| Ok([first, process()?])) {
            Ok(processes) => {
                let name = format!("{} {}", contestant.name, contestant.version).trim().to_owned();
                let row = Row { name, language: contestant.language().to_owned(), ..Row::default() };
                Some(Entry { contestant, processes, cycles: Vec::new(), sections: Vec::new(), fewest: Vec::new(), row })
            }
            Err(error) => {
                eprintln!("{} {error}", contestant.name);
                None
            }
        }
    }

    /// The uncontended cycle, one thread.
    fn cycle(&mut self, round: usize) -> Result<(), String> {
        let [cycles, nanos] = two(self.processes[0].ask(&format!("cycle {CYCLE_MS}"))?)?;
        // The first round warms up.
        if round > 0 {
            self.cycles.push(cycles * 1e9 / nanos);
        }
        Ok(())
    }

    /// Threads of one process on one key.
    fn sections(&mut self, _: usize) -> Result<(), String> {
        if !self.contestant.waits {
            return Ok(());
        }
        let counts = self.processes[0].ask(&format!("sections {THREADS} {SECTION_MS}"))?;
        let all: u64 = counts.iter().sum();
        let fewest = counts.iter().min().copied().unwrap_or(0) as f64;
        self.sections.push(all as f64 * 1_000.0 / SECTION_MS as f64);
        self.fewest.push(fewest * THREADS as f64 / all.max(1) as f64);
        Ok(())
    }

    /// One process releases while the other waits, in turns: from the call of the release in the one to the
    /// lock acquired in the other. Who released does not contend until the other has it: else most polling
    /// libraries take the lock again themselves, and there is no hand-off to time.
    fn handoffs(&mut self, _: usize) -> Result<(), String> {
        if !self.contestant.waits {
            return Ok(());
        }
        let mut delays = Vec::new();
        let end = Instant::now() + HANDOFF_TIME;
        let [mut holder, mut waiter] = self.processes.each_mut();
        holder.ask("take")?;
        while delays.len() < HANDOFFS && Instant::now() < end {
            waiter.tell("take")?;
            thread::sleep(self.contestant.hold());
            let released = one(holder.ask("give")?)?;
            let acquired = one(waiter.answer()?)?;
            delays.push((acquired - released) / 1_000.0);
            std::mem::swap(&mut holder, &mut waiter);
        }
        holder.ask("give")?;
        delays.sort_by(f64::total_cmp);
        let at = |part: f64| delays[((delays.len() - 1) as f64 * part).round() as usize];
        self.row.handoff_p50_us = Some(at(0.5));
        self.row.handoff_p99_us = Some(at(0.99));
        self.row.handoffs = Some(delays.len() as f64);
        Ok(())
    }
}

impl Contestant {
    /// Varied over the longest pause between two attempts, so that a release falls anywhere into a pause.
    fn hold(&self) -> Duration {
        let spread = self.longest_pause.max(SHORTEST_HOLD).as_micros() as u64;
        SHORTEST_HOLD + Duration::from_micros(RandomState::new().hash_one(0) % spread)
    }
}

fn one(numbers: Vec<u64>) -> Result<f64, String> {
    match numbers[..] {
        [a] => Ok(a as f64),
        _ => Err(format!("answered {numbers:?}")),
    }
}

fn two(numbers: Vec<u64>) -> Result<[f64; 2], String> {
    match numbers[..] {
        [a, b] => Ok([a as f64, b as f64]),
        _ => Err(format!("answered {numbers:?}")),
    }
}
