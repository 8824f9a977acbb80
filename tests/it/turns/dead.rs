//! Waiters that die, stand still or give up: what they cost, and what they leave.

use super::*;

#[test]
fn a_waiter_that_was_killed_costs_the_next_one_nothing() {
    let server = Server::start();
    let holder = client(server.url());
    let next = client(server.url());
    let guard = lock(&holder).lock().unwrap();
    let mut dead: Vec<_> = (0..3).map(|_| workers::start("wait", &server)).collect();
    await_pushed(&server, 3);
    for child in &mut dead {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    thread::scope(|scope| {
        let waiting = scope.spawn(|| (lock(&next).lock().unwrap(), Instant::now()));
        await_pushed(&server, 4);
        let released = Instant::now();
        guard.unlock().unwrap();
        let (_guard, at) = waiting.join().unwrap();
        assert!(at - released < PROMPT, "{:?}", at - released);
    });
}

#[test]
fn a_waiter_that_was_stopped_costs_its_beat_once() {
    let server = Server::start();
    let next = client(server.url());
    let guard = lock(&client(server.url())).lock().unwrap();
    let stopped: Vec<_> = (0..3).map(|_| workers::start("wait", &server)).collect();
    await_pushed(&server, 3);
    stopped.iter().for_each(|child| workers::signal(child, "STOP"));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| (lock(&next).lock().unwrap(), Instant::now()));
        await_pushed(&server, 4);
        let released = Instant::now();
        guard.unlock().unwrap();
        let (_guard, at) = waiting.join().unwrap();
        // The beat is a second and a half, and the next one polls every half second.
        assert!(at - released < ms(1500) + ms(500) + PROMPT, "{:?}", at - released);
    });
    for mut child in stopped {
        child.kill().unwrap();
        child.wait().unwrap();
    }
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
fn a_last_attempt_goes_past_more_dead_waiters_than_one_call_clears() {
    let server = Server::start();
    let mut dead = redis::cmd("ZADD");
    dead.arg(QUEUE);
    for place in 1..=350 {
        dead.arg(place).arg(format!("dead-{place}"));
    }
    let lock = lock(&client(server.url()));
    // Free, with a queue of the dead: a `wait` clears it by the hundred, and then takes the lock.
    let _: () = server.ask(&["SET", "k", "somebody", "PX", "300"]);
    dead.exec(&mut server.connection()).unwrap();
    let guard = lock.try_lock_for(ms(600)).unwrap();
    guard.unlock().unwrap();
    assert_eq!(queued(&server), 0);
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
