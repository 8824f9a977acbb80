//! Waiting in turn: first come, first served over processes, and the lock at the moment of its release.

mod dead;
mod faults;
mod messages;
mod refusals;

use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, Interrupt, LockClient, LockOptions, Wait};

use crate::support::{
    Fate, Proxy, Server, Way, eventually,
    proxy::{LEAVE, WAIT, calls},
    workers,
};

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

pub(crate) fn wait(url: &str) {
    let _guard = lock(&client(url)).lock().unwrap();
    thread::sleep(LONG);
}

#[test]
fn a_waiter_that_gives_up_leaves_its_place_and_the_next_is_not_delayed() {
    let server = Server::start();
    let (one, two, three) = (client(server.url()), client(server.url()), client(server.url()));
    let stop = Interrupt::new();
    let leaving = DistLock::with_options(&two, "k", &LockOptions::new().interrupt(&stop)).unwrap();
    let guard = lock(&one).lock().unwrap();
    thread::scope(|scope| {
        let interrupted = scope.spawn(|| leaving.lock().map(drop));
        await_pushed(&server, 1);
        let timed_out = scope.spawn(|| lock(&two).try_lock_for(ms(300)).map(drop));
        let waiting = scope.spawn(|| (lock(&three).lock().unwrap(), Instant::now()));
        await_pushed(&server, 2);
        stop.interrupt();
        interrupted.join().unwrap().unwrap_err();
        assert!(timed_out.join().unwrap().unwrap_err().is_taken());
        eventually(LONG, "one is left", || queued(&server) == 1);
        let released = Instant::now();
        guard.unlock().unwrap();
        let (_guard, at) = waiting.join().unwrap();
        assert!(at - released < PROMPT, "{:?}", at - released);
    });
}

#[test]
fn nothing_is_left_of_a_wait_when_its_client_is_gone() {
    let server = Server::start();
    let before = server.ask::<String>(&["CLIENT", "LIST"]).lines().count();
    {
        let (one, other) = (client(server.url()), client(server.url()));
        handed_over(&server, &lock(&one), &lock(&other));
        handed_over(&server, &lock(&other), &lock(&one));
    }
    eventually(LONG, "no subscription", || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty());
    eventually(LONG, "no connection", || server.ask::<String>(&["CLIENT", "LIST"]).lines().count() == before);
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]), ["distlock:fence:{k}"]);
}

#[test]
fn hundreds_of_waited_for_keys_need_one_subscription() {
    let server = Server::start();
    let (holder, waiter) = (client(server.url()), ClientOptions::new().max_connections(2).open(server.url()).unwrap());
    let guards: Vec<_> = (0..100).map(|i| DistLock::new(&holder, format!("k{i}")).lock().unwrap()).collect();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..100)
            .map(|i| {
                let waiter = &waiter;
                scope.spawn(move || DistLock::new(waiter, format!("k{i}")).lock().unwrap().unlock().unwrap())
            })
            .collect();
        let queues = || server.ask::<Vec<String>>(&["KEYS", "distlock:queue:*"]).len();
        eventually(LONG, "all wait", || queues() == 100);
        assert_eq!(server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len(), 1);
        guards.into_iter().for_each(|guard| guard.unlock().unwrap());
        waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
    });
}

#[test]
fn who_spins_does_not_queue() {
    let server = Server::start();
    let guard = lock(&client(server.url())).lock().unwrap();
    let spinning = DistLock::with_options(&client(server.url()), "k", &LockOptions::new().wait(Wait::Spin)).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| spinning.lock().unwrap().unlock().unwrap());
        thread::sleep(ms(200));
        assert_eq!(queued(&server), 0);
        assert!(server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty());
        guard.unlock().unwrap();
        waiting.join().unwrap();
    });
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

#[test]
fn a_waiter_whose_seat_is_inherited_is_not_taken_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (one, other) = (client(server.url()), client(proxy.url()));
    handed_over(&server, &lock(&one), &lock(&other));
    let guard = lock(&one).lock().unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| lock(&other).try_lock_for(ms(400)).map(drop));
        await_pushed(&server, 1);
        let token: Vec<String> = server.ask(&["ZRANGE", QUEUE, "0", "-1"]);
        let heir = scope.spawn(|| lock(&other).lock().unwrap());
        assert!(first.join().unwrap().unwrap_err().is_taken());
        // The heir asks with the same token, and has its place.
        let polls = proxy.answered(calls(WAIT));
        eventually(LONG, "a poll of the heir", || proxy.answered(calls(WAIT)) > polls);
        assert_eq!(server.ask::<Vec<String>>(&["ZRANGE", QUEUE, "0", "-1"]), token);
        guard.unlock().unwrap();
        let held = heir.join().unwrap();
        assert_eq!([held.token().to_owned()], token[..]);
        held.unlock().unwrap();
    });
    assert_eq!(proxy.count(calls(LEAVE)), 0);
}

#[test]
fn a_forked_child_leaves_the_subscription_of_its_parent_alone() {
    let server = Server::start();
    workers::ends_well(workers::start("fork while waiting", &server), LONG);
}

pub(crate) fn fork_while_waiting(url: &str) {
    let (one, other) = (client(url), client(url));
    let guard = lock(&one).lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock(&other).lock().unwrap().unlock().unwrap());
        thread::sleep(ms(300));
        match fork::fork().unwrap() {
            fork::Fork::Child => {
                drop(other.clone());
                assert!(lock(&other).try_lock().is_err());
                std::process::exit(0);
            }
            fork::Fork::Parent(child) => {
                fork::waitpid(child).unwrap();
                guard.unlock().unwrap();
                waiting.join().unwrap();
            }
        }
    });
}
