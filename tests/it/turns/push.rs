//! Messages and subscriptions that fail, and clients that cannot have them.

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
fn without_the_rights_to_push_waiters_look_by_themselves_and_all_get_the_lock() {
    let rights = [
        ("-subscribe", "no subscription"),
        ("-publish", "no message"),
        ("-pubsub", "nobody is seen"),
        ("-zadd -hset -zpopmin", "no queue"),
        ("-subscribe -publish -pubsub -zadd", "nothing of it"),
    ];
    for (missing, what) in rights {
        let server = Server::start();
        let mut command = vec!["ACL", "SETUSER", "some", "on", ">pw", "~*", "&*", "+@all"];
        command.extend(missing.split(' '));
        let _: () = server.ask(&command);
        let url = format!("redis://some:pw@127.0.0.1:{}/", server.port());
        // Two of them, and one with every right: all want the lock all the time.
        let clients = [client(&url), client(&url), client(server.url())];
        let stop = Instant::now() + ms(1500);
        let sections: Vec<u64> = thread::scope(|scope| {
            let each = clients.iter().map(|client| {
                scope.spawn(move || {
                    let (lock, mut n) = (lock(client), 0);
                    while Instant::now() < stop {
                        let guard = lock.lock().unwrap();
                        thread::sleep(ms(1));
                        guard.unlock().unwrap();
                        n += 1;
                    }
                    n
                })
            });
            each.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(sections.iter().all(|n| *n > 5), "{what}: {sections:?}");
    }
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
