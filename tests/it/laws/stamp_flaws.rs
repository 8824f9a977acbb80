//! The flaws of the timestamp protocol: what cures each, and what it does where nothing can.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, ErrorKind, LockClient, TimestampLock, TimestampOptions};
use redis::Commands;

use super::{BOUND, LONG, assert_kind, assert_taken, ms};
use crate::support::{
    Server,
    proxy::{STAMP, UNSTAMP},
};

const NEW: TimestampOptions = TimestampOptions::new();

fn lock(server: &Server, options: &TimestampOptions) -> TimestampLock {
    TimestampLock::with_options(&LockClient::open(server.url()).unwrap(), "k", options).unwrap()
}

/// A script as a client runs it whose own clock says `now` (ms; none: it asks the server's).
fn run(server: &Server, script: &str, now: Option<u64>, args: &[&str]) -> String {
    let now = now.map_or(String::new(), |now| now.to_string());
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(4).arg(&["k", "f", "q", "w"]).arg(7).arg(&args[..2]).arg(now).arg(&args[2..]);
    command.query(&mut server.connection()).unwrap()
}

/// The server's clock, ms.
fn clock(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    seconds * 1000 + micros / 1000
}

/// `stamp` by a client with this clock, for 30 s.
fn stamp(server: &Server, now: Option<u64>) -> String {
    let stamp = (now.unwrap_or(clock(server)) + 30_000).to_string();
    run(server, STAMP, now, &[&stamp, "1", "15000", "1", "9007199254740991"])
}

#[test]
fn a_client_whose_clock_is_ahead_takes_what_is_not_over_and_one_that_asks_the_server_does_not() {
    let server = Server::start();
    let ahead = || clock(&server) + 60_000;
    let guard = lock(&server, &NEW).lock().unwrap();
    // One of ours, by the server's clock.
    let answer = stamp(&server, None);
    assert!(answer.starts_with("taken "), "{answer}");
    assert!(guard.is_valid());
    // By its own clock, as an old client does it.
    let answer = stamp(&server, Some(ahead()));
    assert!(answer.starts_with("held "), "{answer}");
    let theirs: String = server.ask(&["GET", "k"]);
    assert_kind(guard.unlock(), ErrorKind::Lost);
    assert_eq!(server.ask::<String>(&["GET", "k"]), theirs, "nothing of theirs is deleted");
}

#[test]
fn a_stamp_made_by_a_wrong_idea_of_the_servers_clock_is_refused_and_made_anew() {
    let server = Server::start();
    let stale = (clock(&server) - 60_000 + 30_000).to_string();
    let answer = run(&server, STAMP, None, &[&stale, "1", "15000", "1", "9007199254740991"]);
    assert!(answer.starts_with("late "), "{answer}");
    let good = (clock(&server) + 30_000).to_string();
    let answer = run(&server, STAMP, None, &[&good, "1", "15000", "1", "1000"]);
    assert!(answer.starts_with("late "), "after its not_after: {answer}");
    assert_eq!(server.ask::<i32>(&["EXISTS", "k"]), 0, "nothing was done");
}

#[test]
fn of_those_who_find_an_old_stamp_one_gets_the_lock_and_the_others_write_nothing() {
    let server = Server::start();
    let start = std::sync::Barrier::new(8);
    for round in 0..20 {
        server.ask::<()>(&["SET", "k", "1000"]);
        let locks: Vec<_> = (0..8).map(|_| lock(&server, &NEW)).collect();
        let won: Vec<_> = thread::scope(|scope| {
            let tries: Vec<_> = locks.iter().map(|lock| scope.spawn(|| (start.wait(), lock.try_lock()).1)).collect();
            tries.into_iter().filter_map(|one| one.join().unwrap().ok()).collect()
        });
        assert_eq!(won.len(), 1, "round {round}");
        assert_eq!(server.ask::<u64>(&["GET", "k"]), won[0].stamp(), "the winner's stamp stands");
    }
}

#[test]
fn a_loser_of_the_old_kind_overwrites_the_winners_stamp_which_is_then_lost_to_its_release() {
    let server = Server::start();
    let (ours, mut old) = (lock(&server, &NEW), server.connection());
    let _: () = old.set("k", "1000").unwrap();
    // The old client reads that it is over …
    assert_eq!(old.get::<_, String>("k").unwrap(), "1000");
    // … we take it …
    let guard = ours.try_lock().unwrap();
    // … and its GETSET tells it that it has lost, and leaves its stamp.
    let later = (clock(&server) + 900).to_string();
    assert_eq!(old.getset::<_, _, u64>("k", &later).unwrap(), guard.stamp());
    assert!(guard.is_valid(), "nobody else has it");
    assert_kind(ours.try_lock(), ErrorKind::Taken);
    // Whose it is now cannot be told: it is not deleted, and ends by itself.
    let start = Instant::now();
    assert_kind(guard.unlock(), ErrorKind::Lost);
    assert_eq!(old.get::<_, String>("k").unwrap(), later);
    ours.try_lock_for(LONG).unwrap().unlock().unwrap();
    assert!(start.elapsed() < ms(900) + BOUND, "{:?}", start.elapsed());
}

#[test]
fn an_equal_stamp_is_taken_for_ones_own_by_a_release_and_never_by_an_attempt() {
    let server = Server::start();
    let stamp = clock(&server) + 30_000;
    // Two that write in the same millisecond: the first one's is deleted by an operator in between.
    let text = stamp.to_string();
    let attempt = |text: &str| run(&server, STAMP, None, &[text, "1", "15000", "1", "9007199254740991"]);
    assert!(attempt(&text).starts_with("held "));
    assert!(attempt(&text).starts_with("taken "), "equal, and another's");
    server.ask::<()>(&["DEL", "k"]);
    assert!(attempt(&text).starts_with("held "));
    assert_eq!(run(&server, UNSTAMP, None, &[&text, "1"]), "1 7", "the first one ends what is the second one's");
    // With digits of their own they are told apart.
    let (first, second) = (stamp - stamp % 1000 + 1001, stamp - stamp % 1000 + 1002);
    assert!(attempt(&first.to_string()).starts_with("held "));
    server.ask::<()>(&["DEL", "k"]);
    assert!(attempt(&second.to_string()).starts_with("held "));
    assert_eq!(run(&server, UNSTAMP, None, &[&first.to_string(), "1"]), "0 7");
    assert_eq!(server.ask::<u64>(&["GET", "k"]), second);
}

#[test]
fn a_stamp_names_no_owner() {
    let server = Server::start();
    let guard = lock(&server, &NEW).lock().unwrap();
    let holder = DistLock::new(&LockClient::open(server.url()).unwrap(), "k").holder().unwrap().unwrap();
    assert_eq!(holder.token, guard.stamp().to_string());
    assert_eq!(holder.label, None);
}

#[test]
fn what_a_crashed_holder_leaves_goes_with_its_stamp_or_stays_for_ever() {
    let server = Server::start();
    std::mem::forget(lock(&server, &NEW.ttl(ms(100))).lock().unwrap());
    thread::sleep(ms(200));
    assert_eq!(server.ask::<i32>(&["EXISTS", "k"]), 0);
    std::mem::forget(lock(&server, &NEW.ttl(ms(100)).keep_key()).lock().unwrap());
    thread::sleep(ms(200));
    assert_eq!(server.ask::<i64>(&["PTTL", "k"]), -1, "for ever, until somebody takes it");
    lock(&server, &NEW).try_lock().unwrap().unlock().unwrap();
    assert_eq!(server.ask::<i32>(&["EXISTS", "k"]), 0);
}

#[test]
fn a_stamp_and_a_token_on_one_key_wait_for_each_other() {
    let server = Server::start();
    let stamps = lock(&server, &NEW.ttl(ms(900)));
    let tokens = DistLock::new(&LockClient::open(server.url()).unwrap(), "k");
    let guard = tokens.lock().unwrap();
    assert_kind(stamps.try_lock(), ErrorKind::Taken);
    assert_kind(stamps.try_lock_for(ms(100)), ErrorKind::Taken);
    assert_eq!(server.ask::<String>(&["GET", "k"]), guard.token());
    guard.unlock().unwrap();
    let guard = stamps.lock().unwrap();
    assert_taken(tokens.try_lock());
    assert_taken(tokens.try_lock_for(ms(100)));
    assert_eq!(server.ask::<u64>(&["GET", "k"]), guard.stamp());
    guard.unlock().unwrap();
    // A crashed one of ours is over when its key is; one of an old client never, for a `DistLock`.
    let start = Instant::now();
    std::mem::forget(stamps.lock().unwrap());
    drop(tokens.try_lock_for(LONG).unwrap());
    assert!(start.elapsed() < ms(900) + BOUND, "{:?}", start.elapsed());
    server.ask::<()>(&["SET", "k", "1000"]);
    assert_taken(tokens.try_lock_for(ms(300)));
    assert!(stamps.try_lock().is_ok(), "who speaks its protocol takes it away");
    drop(tokens.try_lock_for(Duration::from_secs(2)).unwrap());
}
