//! Waiting in turn: first come, first served over processes, and the lock at the moment of its release.

mod dead;
mod push;

use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, Interrupt, LockClient, LockOptions, Wait};

use crate::support::{Fate, Proxy, Server, Way, eventually, workers};

pub(crate) use dead::{fork_while_waiting, wait};

const LONG: Duration = Duration::from_secs(20);
/// Far below the poll of half a second, far above a hand-off.
const PROMPT: Duration = Duration::from_millis(200);
const QUEUE: &str = "distlock:queue:{k}";

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn client(url: impl AsRef<str>) -> LockClient {
    LockClient::open(url.as_ref()).unwrap()
}

fn lock(client: &LockClient) -> DistLock {
    DistLock::new(client, "k")
}

fn queued(server: &Server) -> usize {
    server.ask(&["ZCARD", QUEUE])
}

/// Waits until so many are in the queue, and each of them is one that a message reaches.
fn await_pushed(server: &Server, waiters: usize) {
    eventually(LONG, "queued, and listening", || {
        let entries: Vec<String> = server.ask(&["HVALS", "distlock:waiters:{k}"]);
        entries.len() == waiters && entries.iter().all(|entry| entry.contains("distlock:client:"))
    });
}

/// How long after the release by `guard` another client has the lock.
fn handed_over(server: &Server, holder: &DistLock, waiter: &DistLock) -> Duration {
    let guard = holder.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = waiter.lock().unwrap();
            let at = Instant::now();
            guard.unlock().unwrap();
            at
        });
        eventually(LONG, "queued", || queued(server) == 1);
        thread::sleep(ms(100));
        let released = Instant::now();
        guard.unlock().unwrap();
        waiting.join().unwrap() - released
    })
}

#[test]
fn the_next_process_has_the_lock_when_it_is_released() {
    let server = Server::start();
    let (one, other) = (client(server.url()), client(server.url()));
    // The first time it subscribes; later it is told.
    handed_over(&server, &lock(&one), &lock(&other));
    let mut times: Vec<_> = (0..10).map(|_| handed_over(&server, &lock(&one), &lock(&other))).collect();
    times.sort();
    assert!(times[5] < ms(20), "{times:?}");
    assert!(times[9] < PROMPT, "{times:?}");
}

#[test]
fn processes_get_the_lock_in_the_order_in_which_they_came() {
    let server = Server::start();
    let clients: Vec<_> = (0..8).map(|_| client(server.url())).collect();
    let order = Mutex::new(Vec::new());
    let guard = lock(&client(server.url())).lock().unwrap();
    thread::scope(|scope| {
        for (i, client) in clients.iter().enumerate() {
            let order = &order;
            scope.spawn(move || {
                let guard = lock(client).lock().unwrap();
                order.lock().unwrap().push((i, guard.fence()));
                guard.unlock().unwrap();
            });
            eventually(LONG, "queued", || queued(&server) == i + 1);
        }
        await_pushed(&server, 8);
        guard.unlock().unwrap();
    });
    let order = order.into_inner().unwrap();
    assert!(order.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{order:?}");
}

#[test]
fn one_release_wakes_one_waiter_for_the_same_calls_however_many_wait() {
    let server = Server::start();
    let calls = |waiters: usize| {
        let clients: Vec<_> = (0..waiters).map(|_| client(server.url())).collect();
        let guard = lock(&client(server.url())).lock().unwrap();
        thread::scope(|scope| {
            for client in &clients {
                scope.spawn(move || lock(client).lock().unwrap().unlock().unwrap());
            }
            await_pushed(&server, waiters);
            let count = || crate::support::ways::script_calls(&server.ask::<String>(&["INFO", "commandstats"]));
            let before = count();
            guard.unlock().unwrap();
            eventually(LONG, "all had it", || server.ask::<i64>(&["EXISTS", "k", QUEUE]) == 0);
            (count() - before) as f64 / waiters as f64
        })
    };
    // One release each; polls of those who wait for the others come on top where the machine is slow.
    let (few, many) = (calls(2), calls(24));
    assert!(few <= 3.0 && many <= 3.0, "{few} and {many} calls a hand-off");
}

#[test]
fn a_granted_lock_that_is_held_for_long_is_renewed() {
    let server = Server::start();
    let (one, other) = (client(server.url()), client(server.url()));
    handed_over(&server, &lock(&one), &lock(&other));
    let guard = lock(&one).lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock(&other).lock().unwrap());
        await_pushed(&server, 1);
        guard.unlock().unwrap();
        let granted = waiting.join().unwrap();
        assert!(granted.remaining() < ms(2000), "a grant is short: {:?}", granted.remaining());
        eventually(LONG, "renewed to its ttl", || granted.remaining() > Duration::from_secs(20));
        assert!(!granted.wait_lost_for(ms(2500)));
        granted.unlock().unwrap();
    });
}

#[test]
fn a_lock_that_is_freed_by_hand_or_by_its_ttl_goes_to_the_first_in_the_queue() {
    let server = Server::start();
    let (one, other) = (client(server.url()), client(server.url()));
    handed_over(&server, &lock(&one), &lock(&other));
    for by_hand in [true, false] {
        let options = LockOptions::new().ttl(ms(1000)).renew(distlock::Renew::Never);
        let _guard = DistLock::with_options(&one, "k", &options).unwrap().lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(&other).lock().unwrap());
            await_pushed(&server, 1);
            let start = Instant::now();
            if by_hand {
                let _: () = server.ask(&["DEL", "k"]);
            }
            waiting.join().unwrap().unlock().unwrap();
            assert!(start.elapsed() < ms(1000) + PROMPT, "{:?}", start.elapsed());
        });
    }
}

#[test]
fn force_unlock_hands_the_lock_to_the_first_in_the_queue() {
    let server = Server::start();
    let (one, other) = (client(server.url()), client(server.url()));
    handed_over(&server, &lock(&one), &lock(&other));
    let guard = lock(&one).lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| (lock(&other).lock().unwrap(), Instant::now()));
        await_pushed(&server, 1);
        let start = Instant::now();
        assert!(lock(&one).force_unlock().unwrap());
        let (_guard, at) = waiting.join().unwrap();
        assert!(at - start < PROMPT, "{:?}", at - start);
    });
    guard.unlock().unwrap_err();
}
