//! What a seed makes of the faults of a random run: which, to whom, and when.

use std::time::Duration;

use super::contender::KEYS;
use crate::support::dice::Dice;
use crate::support::{Fate, Way};

pub(crate) const WORKERS: usize = 4;

/// A fault, or its end. A number is that of a worker, or of its proxy.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fault {
    /// SIGSTOP, SIGCONT, SIGKILL of a worker.
    Stop(usize),
    Wake(usize),
    Kill(usize),
    /// The server is stopped for so long.
    Freeze(Duration),
    /// The server is killed and comes back empty.
    Restart,
    /// `CLIENT KILL`.
    CutAll,
    FlushScripts,
    FlushAll,
    Delete(&'static str),
    Overwrite(&'static str),
    Rename(&'static str),
    Persist(&'static str),
    /// Deletes the key if it still has no ttl.
    Tidy(&'static str),
    /// No memory is left for writes.
    Fill,
    Empty,
    /// This becomes of the next so many messages of a worker.
    Meet(usize, Way, Fate, usize),
    Delay(usize, Way, Duration),
    Block(usize, Way),
    Heal(usize),
}

/// The faults of a run and their times, in order.
pub(crate) fn of(seed: u64, length: Duration) -> Vec<(Duration, Fault)> {
    let mut dice = Dice::of(seed);
    let mut plan = vec![(length / 2, Fault::Kill(0))];
    let mut at = Duration::from_millis(300);
    while at < length {
        let (fault, end) = draw(&mut dice);
        plan.push((at, fault));
        plan.extend(end.map(|(after, fault)| (at + after, fault)));
        at += dice.millis(30, 450);
    }
    plan.sort_by_key(|(at, _)| *at);
    plan
}

/// A fault, and what ends it.
fn draw(dice: &mut Dice) -> (Fault, Option<(Duration, Fault)>) {
    let (worker, key, way) = (dice.one_of(&[0, 1, 2, 3]), dice.one_of(&KEYS), dice.one_of(&[Way::Request, Way::Reply]));
    let after = dice.millis(20, 900);
    match dice.below(20) {
        0..3 => (Fault::Stop(worker), Some((after, Fault::Wake(worker)))),
        3 => (Fault::Freeze(dice.millis(10, 500)), None),
        4 => (Fault::Restart, None),
        5 => (Fault::CutAll, None),
        6 => (Fault::FlushScripts, None),
        7 => (Fault::FlushAll, None),
        8 => (Fault::Delete(key), None),
        9 => (Fault::Overwrite(key), None),
        10 => (Fault::Rename(key), None),
        11 => (Fault::Persist(key), Some((after, Fault::Tidy(key)))),
        12 => (Fault::Fill, Some((after, Fault::Empty))),
        13 => (Fault::Block(worker, way), Some((after, Fault::Heal(worker)))),
        14 => (Fault::Delay(worker, way, dice.millis(1, 200)), Some((after, Fault::Heal(worker)))),
        _ => {
            let fate = dice.one_of(&[&Fate::Lose, &Fate::Cut, &Fate::Halve]).clone();
            let n = 1 + usize::try_from(dice.below(4)).expect("a small number");
            (Fault::Meet(worker, way, fate, n), None)
        }
    }
}

#[test]
fn a_seed_replays_its_faults() {
    let long = Duration::from_secs(60);
    assert_eq!(of(7, long), of(7, long));
    assert_ne!(of(7, long), of(8, long));
    // In a long run each kind comes.
    let kinds: std::collections::HashSet<_> =
        of(7, 10 * long).iter().map(|(_, fault)| std::mem::discriminant(fault)).collect();
    assert_eq!(kinds.len(), 19);
}
