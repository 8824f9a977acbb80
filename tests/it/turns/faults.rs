//! What may happen to a server, while processes wait in its queues: all of them get the lock, one after
//! the other, with rising fences, and nothing is left.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::*;

/// The lock is released while it lasts, or when it is over.
#[derive(Clone, Copy, Debug)]
enum Release {
    During,
    After,
}

struct Trouble {
    name: &'static str,
    arguments: &'static [&'static str],
    begin: fn(&mut Server),
    end: fn(&mut Server),
}

const WAITERS: usize = 3;
/// Longer than any waiter sleeps, and not as long as a lease.
const LASTS: Duration = ms(800);
const HELPERS: [&str; 2] = [QUEUE, "distlock:waiters:{k}"];

const TROUBLES: [Trouble; 14] = [
    Trouble { begin: |server| server.kill(), end: |server| server.restart(), ..Trouble::named("killed, back empty") },
    Trouble {
        arguments: &["--appendonly", "yes", "--appendfsync", "always"],
        begin: |server| server.kill(),
        end: |server| server.restart(),
        ..Trouble::named("killed, back with its data")
    },
    Trouble { begin: |server| server.pause(), end: |server| server.resume(), ..Trouble::named("stopped") },
    Trouble { begin: |server| server.ask(&["FLUSHALL"]), ..Trouble::named("flushed") },
    Trouble { begin: |server| server.ask(&["SCRIPT", "FLUSH"]), ..Trouble::named("scripts flushed") },
    Trouble {
        begin: |server| server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]),
        ..Trouble::named("subscriptions cut")
    },
    Trouble { begin: |server| server.ask(&["CLIENT", "KILL", "TYPE", "normal"]), ..Trouble::named("connections cut") },
    Trouble { begin: |server| drop_keys(server, &HELPERS[..1]), ..Trouble::named("the queue is gone") },
    Trouble { begin: |server| drop_keys(server, &HELPERS[1..]), ..Trouble::named("who waits is gone") },
    Trouble {
        begin: |server| {
            drop_keys(server, &HELPERS);
            let _: () = server.ask(&["SET", QUEUE, "of another type"]);
        },
        end: |server| drop_keys(server, &HELPERS),
        ..Trouble::named("a queue of another type")
    },
    Trouble {
        begin: |server| server.ask(&["CONFIG", "SET", "maxmemory", "1"]),
        end: |server| server.ask(&["CONFIG", "SET", "maxmemory", "0"]),
        ..Trouble::named("memory is full")
    },
    Trouble {
        begin: |server| server.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
        end: |server| server.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]),
        ..Trouble::named("replicas are missing")
    },
    Trouble {
        // Its master is nowhere, so that it keeps what it has, and answers READONLY.
        begin: |server| server.ask(&["REPLICAOF", "127.0.0.1", "1"]),
        end: |server| server.ask(&["REPLICAOF", "NO", "ONE"]),
        ..Trouble::named("demoted")
    },
    Trouble { begin: keep_busy, end: |server| server.ask(&["SCRIPT", "KILL"]), ..Trouble::named("busy with a script") },
];

impl Trouble {
    const fn named(name: &'static str) -> Trouble {
        Trouble { name, arguments: &[], begin: |_| {}, end: |_| {} }
    }
}

fn drop_keys(server: &Server, keys: &[&str]) {
    let _: () = server.ask(&[&["DEL"], keys].concat());
}

fn keep_busy(server: &mut Server) {
    let _: () = server.ask(&["CONFIG", "SET", "lua-time-limit", "100"]);
    let mut connection = server.connection();
    thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection));
    let is_busy = || redis::cmd("PING").exec(&mut server.connection()).is_err();
    eventually(LONG, "busy", is_busy);
}

fn ride_out(trouble: &Trouble, release: Release) {
    let mut server = Server::with(trouble.arguments);
    let options = LockOptions::new().ttl(ms(2000));
    let clients: Vec<_> = (0..=WAITERS).map(|_| client(server.url())).collect();
    let lock = |client| DistLock::with_options(client, "k", &options).unwrap();
    // Each has been there before, so that its scripts are known.
    clients.iter().for_each(|client| lock(client).lock().unwrap().unlock().unwrap());
    let (inside, order) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    let guard = lock(&clients[0]).lock().unwrap();
    let first = guard.fence();
    thread::scope(|scope| {
        for client in &clients[1..] {
            scope.spawn(|| {
                let guard = lock(client).try_lock_for(LONG).unwrap();
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are in");
                order.lock().unwrap().push(guard.fence());
                thread::sleep(ms(20));
                assert!(guard.is_valid());
                inside.fetch_sub(1, SeqCst);
                let _ = guard.unlock();
            });
        }
        await_pushed(&server, WAITERS);
        (trouble.begin)(&mut server);
        let guard = match release {
            Release::During => {
                drop(guard);
                None
            }
            Release::After => Some(guard),
        };
        thread::sleep(LASTS);
        (trouble.end)(&mut server);
        drop(guard);
    });
    let order = order.into_inner().unwrap();
    assert_eq!(order.len(), WAITERS);
    assert!(first < order[0] && order.is_sorted_by(|a, b| a < b), "{first} {order:?}");
    eventually(LONG, "nothing is left", || server.ask::<i64>(&["EXISTS", "k", HELPERS[0], HELPERS[1]]) == 0);
}

#[test]
fn whatever_happens_to_a_server_all_who_wait_get_the_lock_in_turn_and_nothing_is_left() {
    let broken: Vec<String> = thread::scope(|scope| {
        let run = |trouble: &'static Trouble, release| {
            let name = format!("{}, released {release:?}", trouble.name);
            let thread = thread::Builder::new().name(name.clone());
            (name, thread.spawn_scoped(scope, move || ride_out(trouble, release)).unwrap())
        };
        let both = |trouble| [run(trouble, Release::During), run(trouble, Release::After)];
        let threads: Vec<_> = TROUBLES.iter().flat_map(both).collect();
        threads.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect()
    });
    assert!(broken.is_empty(), "broken: {broken:#?}");
}
