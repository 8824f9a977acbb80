//! Waiting where the queue or the messages are refused.

use super::*;

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
fn a_queue_of_another_type_makes_the_waiters_of_its_lock_spin_and_of_no_other() {
    let server = Server::start();
    let (one, other) = (client(server.url()), client(server.url()));
    handed_over(&server, &lock(&one), &lock(&other));
    let _: () = server.ask(&["SET", "distlock:queue:{odd}", "no queue"]);
    let odd = [&one, &other].map(|client| DistLock::new(client, "odd"));
    let guard = odd[0].lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| odd[1].lock().unwrap().unlock().unwrap());
        thread::sleep(ms(100));
        guard.unlock().unwrap();
        waiting.join().unwrap();
    });
    let took = handed_over(&server, &lock(&one), &lock(&other));
    assert!(took < PROMPT, "{took:?}");
}

#[test]
fn a_client_that_may_publish_again_says_so_when_it_listens_anew() {
    let server = Server::start();
    let user = |rights: &[&str]| {
        server.ask::<()>(&[&["ACL", "SETUSER", "some", "on", ">pw", "~*", "&*", "+@all"], rights].concat())
    };
    user(&["-publish"]);
    let (one, other) = (client(format!("redis://some:pw@127.0.0.1:{}/", server.port())), client(server.url()));
    // Each has waited, so that both listen; then the one finds that it cannot tell the other.
    handed_over(&server, &lock(&other), &lock(&one));
    eventually(LONG, "it says that it cannot", || {
        handed_over(&server, &lock(&one), &lock(&other));
        lock(&one).lock().unwrap().token().starts_with("d0.")
    });
    user(&[]);
    assert!(lock(&one).lock().unwrap().token().starts_with("d0."), "it does not know yet");
    let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually(LONG, "it says that it can", || lock(&one).lock().unwrap().token().starts_with("d1."));
    let took = handed_over(&server, &lock(&one), &lock(&other));
    assert!(took < PROMPT, "{took:?}");
}
