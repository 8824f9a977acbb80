//! Messages of grants that are lost, late, forged, or come to who does not wait any more.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::*;

#[test]
fn a_message_that_is_lost_or_late_costs_a_poll_and_never_a_second_owner() {
    let server = Server::start();
    let holder = client(server.url());
    for fate in [Fate::Lose, Fate::Hold, Fate::Cut] {
        let proxy = Proxy::to(server.port());
        let waiter = client(proxy.url());
        // It listens from here on.
        handed_over(&server, &lock(&holder), &lock(&waiter));
        eventually(LONG, "listening", || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len() == 1);
        proxy.rule(Way::Reply, fate.clone(), 1, |request| request.is_empty());
        let took = handed_over(&server, &lock(&holder), &lock(&waiter));
        assert!(took < ms(1500), "{fate:?}: {took:?}");
        // It arrives when its grant is long over.
        proxy.release();
        let guard = lock(&waiter).try_lock_for(LONG).unwrap();
        guard.extend(Duration::ZERO).unwrap();
        guard.unlock().unwrap();
        proxy.pass();
        drop(waiter);
        eventually(LONG, "nobody listens", || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty());
    }
}

#[test]
fn a_listener_that_is_cut_off_comes_back_and_no_waiter_is_lost() {
    let server = Server::start();
    let (one, other) = (client(server.url()), client(server.url()));
    handed_over(&server, &lock(&one), &lock(&other));
    for _ in 0..3 {
        let guard = lock(&one).lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(&other).lock().unwrap().unlock().unwrap());
            await_pushed(&server, 1);
            let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            // It notices, polls, and subscribes again: with its place.
            await_pushed(&server, 1);
            guard.unlock().unwrap();
            waiting.join().unwrap();
        });
    }
    let mut times: Vec<_> = (0..5).map(|_| handed_over(&server, &lock(&one), &lock(&other))).collect();
    times.sort();
    assert!(times[2] < PROMPT, "told again: {times:?}");
}

#[test]
fn a_grant_that_was_announced_wins_over_the_error_that_would_end_the_wait() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (one, other) = (client(server.url()), client(proxy.url()));
    let impatient = LockOptions::new().unreachable_after(Duration::ZERO);
    let impatient = DistLock::with_options(&other, "k", &impatient).unwrap();
    // The first time it is not heard from the start; the second time only its first `wait` is answered.
    for answered in [usize::MAX, 1] {
        let guard = lock(&one).lock().unwrap();
        let (before, waits, is_wait) = (proxy.count(calls(WAIT)), AtomicUsize::new(0), calls(WAIT));
        proxy.rule(Way::Reply, Fate::Lose, usize::MAX, move |request: &[u8]| {
            is_wait(request) && waits.fetch_add(1, SeqCst) >= answered
        });
        let granted = thread::scope(|scope| {
            let waiting = scope.spawn(|| impatient.lock());
            await_pushed(&server, 1);
            // The second one is executed, and nothing useful is heard any more but the message.
            eventually(LONG, "a poll", || proxy.count(calls(WAIT)) >= before + 2);
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap()
        });
        proxy.pass();
        granted.unlock().unwrap();
    }
}

#[test]
fn a_message_for_who_has_given_up_is_answered_by_passing_the_lock_on() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let (one, other, next) = (client(server.url()), client(proxy.url()), client(server.url()));
    handed_over(&server, &lock(&one), &lock(&other));
    handed_over(&server, &lock(&one), &lock(&next));
    let guard = lock(&one).lock().unwrap();
    thread::scope(|scope| {
        // Its last `wait` never arrives, so that it is still queued when it has given up.
        let gives_up = scope.spawn(|| lock(&other).try_lock_for(ms(300)).map(drop));
        await_pushed(&server, 1);
        proxy.rule(Way::Request, Fate::Lose, usize::MAX, calls(WAIT));
        proxy.rule(Way::Request, Fate::Lose, usize::MAX, calls(LEAVE));
        let waiting = scope.spawn(|| (lock(&next).lock().unwrap(), Instant::now()));
        await_pushed(&server, 2);
        gives_up.join().unwrap().unwrap_err();
        let token = server.ask::<Vec<String>>(&["ZRANGE", QUEUE, "0", "0"]).remove(0);
        proxy.pass();
        // Still alive by what it said of itself.
        let back_by = (server.ask::<(u64, u64)>(&["TIME"]).0 + 2) * 1000;
        let entry: String = server.ask(&["HGET", "distlock:waiters:{k}", &token]);
        let rest = entry.split_once(' ').unwrap().1;
        let _: i64 = server.ask(&["HSET", "distlock:waiters:{k}", &token, &format!("{back_by} {rest}")]);
        let released = Instant::now();
        guard.unlock().unwrap();
        let (_guard, at) = waiting.join().unwrap();
        assert!(at - released < PROMPT, "{:?}", at - released);
    });
}

#[test]
fn a_message_that_is_no_grant_is_not_believed() {
    let server = Server::start();
    let (one, other) = (client(server.url()), client(server.url()));
    // It stays, and with it the highest fence that its client has had.
    let waiter = lock(&other);
    handed_over(&server, &lock(&one), &waiter);
    let guard = lock(&one).lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.lock().unwrap());
        await_pushed(&server, 1);
        let (token, entry): (String, String) = {
            let all: Vec<(String, String)> = server.ask(&["HGETALL", "distlock:waiters:{k}"]);
            all[0].clone()
        };
        let words: Vec<&str> = entry.splitn(3, ' ').collect();
        let (number, channel) = (words[1].parse::<u64>().unwrap(), words[2]);
        let fence = guard.fence() + 17;
        for (number, fence, key) in
            [(number - 1, fence, "k"), (number + 1000, fence, "k"), (number, fence, "other"), (number, 17, "k")]
        {
            let text = format!("{number} 1500 {fence} {token} {key}");
            assert_eq!(server.ask::<i64>(&["PUBLISH", channel, &text]), 1);
        }
        let _: i64 = server.ask(&["PUBLISH", channel, "nonsense"]);
        thread::sleep(ms(150));
        assert!(!waiting.is_finished(), "two owners");
        guard.unlock().unwrap();
        waiting.join().unwrap().unlock().unwrap();
    });
}

#[test]
fn a_message_that_comes_again_makes_no_second_owner_and_takes_nothing_away() {
    let server = Server::start();
    let (one, other) = (client(server.url()), client(server.url()));
    let (holder, waiter) = (lock(&one), lock(&other));
    handed_over(&server, &holder, &waiter);
    let guard = holder.lock().unwrap();
    let mut observer = server.connection();
    observer.set_read_timeout(Some(LONG)).unwrap();
    let (granted, channel, message) = thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.lock().unwrap());
        await_pushed(&server, 1);
        let entry: String = server.ask::<Vec<String>>(&["HVALS", "distlock:waiters:{k}"]).remove(0);
        let channel = entry.splitn(3, ' ').nth(2).unwrap().to_owned();
        let mut observer = observer.as_pubsub();
        observer.subscribe(&channel).unwrap();
        guard.unlock().unwrap();
        let message: String = observer.get_message().unwrap().get_payload().unwrap();
        (waiting.join().unwrap(), channel, message)
    });
    let again = || assert!(server.ask::<i64>(&["PUBLISH", &channel, &message]) >= 1);
    // While it is held, when it is free, and when it is another's, with the same client in the queue.
    again();
    granted.extend(Duration::ZERO).unwrap();
    granted.unlock().unwrap();
    again();
    let guard = holder.try_lock_for(PROMPT).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.lock().unwrap());
        await_pushed(&server, 1);
        again();
        thread::sleep(ms(150));
        assert!(!waiting.is_finished(), "two owners");
        guard.extend(Duration::ZERO).unwrap();
        guard.unlock().unwrap();
        waiting.join().unwrap().unlock().unwrap();
    });
}
