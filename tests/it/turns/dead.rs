//! Waiters that do not answer any more, and what they cost the others.

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
fn ten_thousand_dead_in_front_are_cleared_by_the_hundred_and_the_living_get_the_lock_in_their_order() {
    let server = Server::start();
    let clients: Vec<_> = (0..4).map(|_| client(server.url())).collect();
    let order = Mutex::new(Vec::new());
    let guard = lock(&clients[0]).lock().unwrap();
    let start = thread::scope(|scope| {
        for (i, client) in clients[1..].iter().enumerate() {
            let order = &order;
            scope.spawn(move || {
                let guard = lock(client).try_lock_for(LONG).unwrap();
                order.lock().unwrap().push(i);
                guard.unlock().unwrap();
            });
            eventually(LONG, "queued", || queued(&server) == i + 1);
        }
        await_pushed(&server, 3);
        let (mut entries, mut waiters) = (redis::cmd("ZADD"), redis::cmd("HSET"));
        entries.arg(QUEUE);
        waiters.arg("distlock:waiters:{k}");
        for place in 1..=10_000 {
            // Half of them never said when they would be back, and half are late.
            entries.arg(place).arg(format!("dead-{place}"));
            if place % 2 == 0 {
                waiters.arg(format!("dead-{place}")).arg("1000 1 distlock:client:nobody");
            }
        }
        entries.exec(&mut server.connection()).unwrap();
        waiters.exec(&mut server.connection()).unwrap();
        let start = Instant::now();
        guard.unlock().unwrap();
        start
    });
    // The first to look clears the rest at once: one poll, and the hand-offs.
    assert!(start.elapsed() < ms(500) + 5 * PROMPT, "{:?}", start.elapsed());
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2]);
    assert_eq!(server.ask::<i64>(&["EXISTS", QUEUE, "distlock:waiters:{k}"]), 0);
}
