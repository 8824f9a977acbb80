//! What the gate promises, under every interleaving that the checker tries.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use shuttle::thread::{JoinHandle, spawn, yield_now};

use crate::clock::{self, Moment};
use crate::gate::{Busy, Gate, Refused, Tenure, Turn};
use crate::interrupt::Interrupt;

const SCHEDULES: usize = 4000;

std::thread_local! {
    /// Who is in: never two.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    static ORDER: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Runs a model under random schedules, and under schedules that change course at a few points.
fn check(model: fn()) {
    let run = move || {
        clock::reset();
        INSIDE.set(0);
        ORDER.take();
        model();
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}

fn forever(_: Option<Busy>) -> Moment {
    Moment::NEVER
}

fn enter(gate: &Arc<Gate<u32>>) -> Turn<u32> {
    gate.enter(&forever, &|| false, &|_| ()).unwrap()
}

/// A section that nobody else may be in.
fn section(_turn: &Turn<u32>) {
    INSIDE.set(INSIDE.get() + 1);
    yield_now();
    assert_eq!(INSIDE.get(), 1, "two threads are in");
    INSIDE.set(INSIDE.get() - 1);
}

fn thread(gate: &Arc<Gate<u32>>, work: impl FnOnce(&Arc<Gate<u32>>) + Send + 'static) -> JoinHandle<()> {
    let gate = Arc::clone(gate);
    spawn(move || work(&gate))
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    // All are started before the first one is awaited.
    let threads: Vec<_> = threads.into_iter().collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn until_waiting(gate: &Arc<Gate<u32>>, threads: usize) {
    while gate.waiting() < threads {
        yield_now();
    }
}

#[test]
fn one_thread_at_a_time_is_in_and_no_wake_up_is_lost() {
    check(|| {
        let gate = Arc::new(Gate::new());
        join((0..3).map(|_| {
            thread(&gate, |gate| {
                for _ in 0..2 {
                    let turn = enter(gate);
                    section(&turn);
                }
            })
        }));
        assert!(gate.try_enter().is_ok(), "the gate is left open");
    });
}

#[test]
fn threads_get_in_in_the_order_in_which_they_came() {
    check(|| {
        let gate = Arc::new(Gate::new());
        let first = enter(&gate);
        let threads = (0..3).map(|i| {
            let handle = thread(&gate, move |gate| {
                let turn = enter(gate);
                ORDER.with_borrow_mut(|order| order.push(i));
                section(&turn);
            });
            until_waiting(&gate, i as usize + 1);
            handle
        });
        let threads: Vec<_> = threads.collect();
        drop(first);
        join(threads);
        assert_eq!(ORDER.take(), [0, 1, 2]);
    });
}

#[test]
fn a_wait_that_is_interrupted_at_any_point_stalls_nobody() {
    check(|| {
        let (gate, interrupt) = (Arc::new(Gate::new()), Interrupt::new());
        let first = enter(&gate);
        let theirs = interrupt.clone();
        let interrupted = thread(&gate, move |gate| {
            let _sleeper = theirs.sleeper();
            match gate.enter(&forever, &|| theirs.is_interrupted(), &|_| ()) {
                Ok(turn) => section(&turn),
                Err(refused) => assert_eq!(refused, Refused::Interrupted),
            }
        });
        let behind = thread(&gate, |gate| section(&enter(gate)));
        let caller = spawn(move || interrupt.interrupt());
        section(&first);
        drop(first);
        join([interrupted, behind, caller]);
        assert!(gate.try_enter().is_ok());
    });
}

#[test]
fn an_interrupt_wakes_a_thread_that_nothing_else_would_wake() {
    check(|| {
        let (gate, interrupt) = (Arc::new(Gate::new()), Interrupt::new());
        let first = enter(&gate);
        let theirs = interrupt.clone();
        let waiting = thread(&gate, move |gate| {
            let _sleeper = theirs.sleeper();
            let refused = gate.enter(&forever, &|| theirs.is_interrupted(), &|_| ());
            assert!(matches!(refused, Err(Refused::Interrupted)));
        });
        interrupt.interrupt();
        join([waiting]);
        section(&first);
    });
}

#[test]
fn a_deadline_at_any_point_stalls_nobody_and_loses_to_a_turn_given_in_the_same_moment() {
    check(|| {
        let gate = Arc::new(Gate::new());
        let first = enter(&gate);
        let late = thread(&gate, |gate| match gate.enter(&|_| Moment::at(5), &|| false, &|_| ()) {
            Ok(turn) => section(&turn),
            Err(refused) => {
                assert_eq!(refused, Refused::Limit);
                assert!(Moment::now() >= Moment::at(5), "refused before its time");
            }
        });
        let behind = thread(&gate, |gate| section(&enter(gate)));
        let time = spawn(|| clock::turn_to(5));
        section(&first);
        drop(first);
        join([late, behind, time]);
        assert!(gate.try_enter().is_ok());
    });
}

/// A lease that ends at a tick, or is lost before.
struct Lease(AtomicU64);

impl Tenure for Lease {
    fn until(&self) -> Moment {
        Moment::at(self.0.load(SeqCst))
    }
}

#[test]
fn a_holder_whose_lease_is_over_makes_room_and_its_late_leave_disturbs_nobody() {
    check(|| {
        let gate = Arc::new(Gate::new());
        let holder = enter(&gate);
        holder.hold(Arc::new(Lease(AtomicU64::new(5))));
        let waiting: Vec<_> = (0..2).map(|_| thread(&gate, |gate| section(&enter(gate)))).collect();
        let time = spawn(|| clock::turn_to(5));
        let late = spawn(move || {
            // The guard of a lease that is over is dropped at any time.
            while Moment::now() < Moment::at(5) {
                yield_now();
            }
            drop(holder);
        });
        join(waiting.into_iter().chain([time, late]));
        assert!(gate.try_enter().is_ok());
    });
}

#[test]
fn a_lost_lease_sends_the_next_thread_on_at_once() {
    check(|| {
        let gate = Arc::new(Gate::new());
        let holder = enter(&gate);
        let lease = Arc::new(Lease(AtomicU64::new(1_000_000)));
        holder.hold(Arc::clone(&lease) as Arc<dyn Tenure>);
        let waiting = thread(&gate, |gate| section(&enter(gate)));
        let watchdog = thread(&gate, move |gate| {
            lease.0.store(0, SeqCst);
            gate.look_again();
        });
        join([waiting, watchdog]);
        drop(holder);
        assert!(gate.try_enter().is_ok());
    });
}

#[test]
fn a_lease_that_is_passed_on_is_found_once_or_comes_back_whoever_gives_up_when() {
    check(|| {
        let (gate, interrupt) = (Arc::new(Gate::new()), Interrupt::new());
        let holder = enter(&gate);
        let lease = Arc::new(Lease(AtomicU64::new(1_000_000)));
        holder.hold(Arc::clone(&lease) as Arc<dyn Tenure>);
        let found = Arc::new(AtomicU64::new(0));
        let (theirs, inherited) = (interrupt.clone(), Arc::clone(&found));
        let heir = thread(&gate, move |gate| {
            let _sleeper = theirs.sleeper();
            if let Ok(turn) = gate.enter(&forever, &|| theirs.is_interrupted(), &|_| ()) {
                section(&turn);
                inherited.fetch_add(turn.inherit().map_or(0, u64::from), SeqCst);
            }
        });
        let (late, inherited) = (Arc::clone(&gate), Arc::clone(&found));
        let trying = spawn(move || match late.try_enter() {
            Ok(turn) => {
                section(&turn);
                inherited.fetch_add(turn.inherit().map_or(0, u64::from), SeqCst);
            }
            Err(busy) => assert!(matches!(busy, Busy::Held | Busy::Asking)),
        });
        let caller = spawn(move || interrupt.interrupt());
        section(&holder);
        match holder.pass(7, lease) {
            Ok(()) => {}
            Err((turn, lease)) => {
                section(&turn);
                found.fetch_add(u64::from(lease), SeqCst);
                drop(turn);
            }
        }
        join([heir, trying, caller]);
        assert_eq!(found.load(SeqCst), 7, "a lease was lost, or found twice");
        assert!(gate.try_enter().is_ok());
    });
}

#[test]
fn a_lease_goes_round_in_the_order_of_the_queue() {
    check(|| {
        let gate = Arc::new(Gate::new());
        let first = enter(&gate);
        let lease: Arc<dyn Tenure> = Arc::new(Lease(AtomicU64::new(1_000_000)));
        first.hold(Arc::clone(&lease));
        let threads = (1..4u32).map(|i| {
            let lease = Arc::clone(&lease);
            let handle = thread(&gate, move |gate| {
                let turn = enter(gate);
                section(&turn);
                let passes = turn.inherit().expect("passed on by the one before");
                ORDER.with_borrow_mut(|order| order.push(i));
                assert_eq!(passes, i, "each pass is counted once");
                drop(turn.pass(passes + 1, lease));
            });
            until_waiting(&gate, i as usize);
            handle
        });
        let threads: Vec<_> = threads.collect();
        assert!(first.pass(1, lease).is_ok());
        join(threads);
        assert_eq!(ORDER.take(), [1, 2, 3]);
        assert!(gate.try_enter().is_ok());
    });
}

#[test]
fn a_seat_is_inherited_once_or_comes_back_whoever_gives_up_when() {
    check(|| {
        let (gate, interrupt) = (Arc::new(Gate::new()), Interrupt::new());
        let head = enter(&gate);
        let theirs = interrupt.clone();
        let seats = Arc::new(AtomicU64::new(0));
        let found = Arc::clone(&seats);
        let successor = thread(&gate, move |gate| {
            let _sleeper = theirs.sleeper();
            if let Ok(turn) = gate.enter(&forever, &|| theirs.is_interrupted(), &|_| ()) {
                section(&turn);
                found.fetch_add(turn.inherit().map_or(0, u64::from), SeqCst);
            }
        });
        let caller = spawn(move || interrupt.interrupt());
        match head.hand_over(7) {
            Ok(()) => {}
            Err(seat) => {
                seats.fetch_add(u64::from(seat), SeqCst);
            }
        }
        join([successor, caller]);
        assert_eq!(seats.load(SeqCst), 7, "a seat was lost, or found twice");
    });
}
