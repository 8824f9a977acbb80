//! Several independent servers, of which a majority must agree.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use distlock::{
    ClientOptions, DistLock, DistLockGuard, ErrorKind, LockClient, LockManager, LockOptions, LostReason, TimestampLock,
};

use crate::support::{
    Fate, Proxy, SLACK, Server, Way, eventually,
    proxy::{RELEASE, TRY, calls},
};

const LONG: Duration = Duration::from_secs(20);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::start()).collect()
}

fn client(servers: &[Server]) -> LockClient {
    ClientOptions::new().open_nodes(servers.iter().map(Server::url)).unwrap()
}

fn lock(client: &LockClient, ttl: Duration) -> DistLock {
    DistLock::with_options(client, "k", &LockOptions::new().ttl(ttl)).unwrap()
}

fn value(server: &Server) -> Option<String> {
    server.ask(&["GET", "k"])
}

/// On how many servers the key is this guard's.
fn standing(servers: &[Server], guard: &DistLockGuard) -> usize {
    servers.iter().filter(|server| value(server).as_deref() == Some(guard.token())).count()
}

/// A lock that was held once before, so that connections and scripts are there.
fn warm(client: &LockClient, ttl: Duration) -> DistLock {
    let lock = lock(client, ttl);
    lock.lock().unwrap().unlock().unwrap();
    lock
}

#[test]
fn a_lock_is_held_on_all_nodes_with_one_token_and_one_fence_and_is_released_on_all() {
    let servers = servers(3);
    let lock = warm(&client(&servers), ms(2000));
    let guard = lock.lock().unwrap();
    eventually(LONG, "all have it", || standing(&servers, &guard) == 3);
    let fences: Vec<u64> = servers.iter().map(|server| server.ask(&["GET", "distlock:fence:{k}"])).collect();
    assert!(fences.iter().all(|&fence| fence <= guard.fence()), "{fences:?} {}", guard.fence());
    assert!(fences.iter().filter(|&&fence| fence == guard.fence()).count() >= 2);
    assert!(lock.is_locked().unwrap());
    assert_eq!(lock.holder().unwrap().unwrap().token, guard.token());
    guard.unlock().unwrap();
    eventually(LONG, "all are free", || servers.iter().all(|server| value(server).is_none()));
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn another_client_is_refused_while_it_is_held_and_has_it_afterwards() {
    let servers = servers(3);
    let (one, other) = (client(&servers), client(&servers));
    let (one, other) = (lock(&one, ms(2000)), lock(&other, ms(2000)));
    let guard = one.lock().unwrap();
    assert!(other.try_lock().unwrap_err().is_taken());
    let start = Instant::now();
    assert!(other.try_lock_for(ms(200)).unwrap_err().is_taken());
    assert!((ms(200)..ms(200) + SLACK).contains(&start.elapsed()), "{:?}", start.elapsed());
    let fence = guard.fence();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.lock().unwrap());
        thread::sleep(ms(50));
        guard.unlock().unwrap();
        assert!(waiting.join().unwrap().fence() > fence);
    });
}

#[test]
fn many_contend_and_never_two_are_in() {
    let servers = servers(3);
    let (inside, fences) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..4 {
            let client = client(&servers);
            let (inside, fences) = (&inside, &fences);
            scope.spawn(move || {
                let lock = lock(&client, ms(2000));
                for _ in 0..20 {
                    let guard = lock.try_lock_for(LONG).unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are in");
                    fences.lock().unwrap().push(guard.fence());
                    assert!(guard.is_valid());
                    inside.fetch_sub(1, SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    let fences = fences.into_inner().unwrap();
    assert_eq!(fences.len(), 80);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    let all_free = || servers.iter().all(|server| server.ask::<i64>(&["EXISTS", "k"]) == 0);
    eventually(LONG, "nothing is left", all_free);
}

#[test]
fn a_dead_and_a_silent_node_cost_nobody_anything() {
    for silent in [false, true] {
        let mut servers = servers(3);
        let client = client(&servers);
        let lock = warm(&client, ms(3000));
        if silent {
            servers[1].pause();
        } else {
            servers[1].kill();
        }
        let mut times = Vec::new();
        for _ in 0..10 {
            let start = Instant::now();
            lock.try_lock().unwrap().unlock().unwrap();
            times.push(start.elapsed());
        }
        times.sort();
        // It is found out once.
        assert!(times[8] < ms(150), "silent {silent}: {times:?}");
        assert!(times[9] < ms(2500), "silent {silent}: {times:?}");
        let guard = lock.lock().unwrap();
        assert!(!guard.wait_lost_for(ms(6000)), "renewed by the others");
        guard.unlock().unwrap();
        if silent {
            servers[1].resume();
        } else {
            servers[1].restart();
        }
        let guard = lock.lock().unwrap();
        eventually(LONG, "it takes part again", || {
            guard.extend(Duration::ZERO).unwrap();
            standing(&servers, &guard) >= 2
        });
    }
}

#[test]
fn without_a_majority_there_is_no_lock_and_the_error_names_each_node() {
    let mut servers = servers(3);
    let client = client(&servers);
    let lock = warm(&client, ms(2000));
    servers[0].kill();
    servers[2].pause();
    let start = Instant::now();
    let error = lock.try_lock().unwrap_err();
    assert!(start.elapsed() < ms(1000) + SLACK, "{:?}", start.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let text = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
    for server in &servers {
        assert!(text.contains(&format!("127.0.0.1:{}", server.port())), "{text}");
    }
    assert!(text.contains("has it for us") && text.contains("no answer within"), "{text}");
    servers[2].resume();
    assert!(lock.try_lock_for(LONG).is_ok());
}

#[test]
fn a_failed_attempt_leaves_nothing_on_the_node_that_granted_it() {
    let servers = servers(3);
    let (one, other) = (client(&servers), client(&servers));
    let (one, other) = (lock(&one, ms(5000)), lock(&other, ms(5000)));
    let guard = one.lock().unwrap();
    eventually(LONG, "all have it", || standing(&servers, &guard) == 3);
    // One of the three has forgotten: it gives its vote to the other.
    let _: i64 = servers[2].ask(&["DEL", "k"]);
    assert!(other.try_lock().unwrap_err().is_taken());
    eventually(ms(1500), "taken back, or the holder's again", || {
        value(&servers[2]).is_none_or(|token| token == guard.token())
    });
    assert!(guard.is_valid());
    guard.unlock().unwrap();
}

#[test]
fn nodes_that_restart_empty_one_after_another_lose_no_lock() {
    let mut servers = servers(3);
    let client = client(&servers);
    let lock = warm(&client, ms(1500));
    let guard = lock.lock().unwrap();
    for i in 0..3 {
        eventually(LONG, "all have it", || standing(&servers, &guard) == 3);
        servers[i].kill();
        servers[i].restart();
    }
    eventually(LONG, "all have it again", || standing(&servers, &guard) == 3);
    assert!(guard.is_valid());
    let fence = guard.fence();
    guard.unlock().unwrap();
    assert!(lock.lock().unwrap().fence() > fence);
}

#[test]
fn a_majority_that_forgets_is_a_loss_that_is_told_and_fences_still_grow() {
    let servers = servers(3);
    let client = client(&servers);
    let lock = warm(&client, ms(1500));
    let guard = lock.lock().unwrap();
    for server in &servers[..2] {
        let _: () = server.ask(&["FLUSHALL"]);
    }
    assert!(guard.wait_lost_for(ms(1500)), "within half a ttl");
    let fence = guard.fence();
    let error = guard.unlock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    let next = lock.try_lock_for(LONG).unwrap();
    assert!(next.fence() > fence, "{} after {fence}", next.fence());
}

#[test]
fn a_loss_names_its_reason() {
    let servers = servers(3);
    let client = client(&servers);
    let (tell, told) = std::sync::mpsc::channel();
    let options = LockOptions::new().ttl(ms(1500)).on_lost(move |lost| tell.send(lost.reason).unwrap());
    let lock = DistLock::with_options(&client, "k", &options).unwrap();
    let guard = lock.lock().unwrap();
    for server in &servers {
        let _: () = server.ask(&["SET", "k", "another's", "PX", "5000"]);
    }
    assert_eq!(told.recv_timeout(LONG).unwrap(), LostReason::Taken);
    assert!(!guard.is_valid());
}

#[test]
fn fences_that_differ_are_written_back_to_a_majority() {
    let servers = servers(3);
    let client = client(&servers);
    let lock = warm(&client, ms(2000));
    // This one had a fence far ahead of the others' clocks.
    let ahead = servers[0].ask::<(u64, u64)>(&["TIME"]).0 * 1_000_000 + 3_600_000_000;
    let _: () = servers[0].ask(&["SET", "distlock:fence:{k}", &ahead.to_string()]);
    // The other two agree without it; when one of them is away, its answer is in the majority.
    for _ in 0..3 {
        servers[1].pause();
        let guard = lock.try_lock_for(LONG).unwrap();
        assert!(guard.fence() > ahead);
        let fence = |server: &Server| server.ask::<u64>(&["GET", "distlock:fence:{k}"]);
        assert!(fence(&servers[0]) == guard.fence() && fence(&servers[2]) == guard.fence());
        servers[1].resume();
        guard.unlock().unwrap();
    }
    let _: () = servers[0].ask(&["FLUSHALL"]);
    assert!(lock.lock().unwrap().fence() > ahead, "the others remember");
}

#[test]
fn as_a_rule_a_lock_is_agreed_in_one_round_trip() {
    let servers = servers(3);
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
    let client = ClientOptions::new().open_nodes(proxies.iter().map(Proxy::url)).unwrap();
    let lock = warm(&client, ms(5000));
    let tries = |proxies: &[Proxy]| proxies.iter().map(|proxy| proxy.count(|_: &[u8]| true)).sum::<usize>();
    let before = tries(&proxies);
    for _ in 0..20 {
        lock.lock().unwrap().unlock().unwrap();
    }
    let messages = tries(&proxies) - before;
    // Three tries and three releases each; now and then a write-back, or a take-back.
    assert!(messages <= 20 * 6 + 30, "{messages} messages for 20 cycles");
}

#[test]
fn a_slow_node_is_not_waited_for() {
    let servers = servers(5);
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
    let client = ClientOptions::new().open_nodes(proxies.iter().map(Proxy::url)).unwrap();
    let lock = warm(&client, ms(30_000));
    proxies[4].rule(Way::Reply, Fate::Delay(ms(600)), usize::MAX, |_: &[u8]| true);
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let start = Instant::now();
            let guard = lock.try_lock().unwrap();
            let took = start.elapsed();
            guard.unlock().unwrap();
            took
        })
        .collect();
    times.sort();
    assert!(times[4] < ms(100), "{times:?}");
}

#[test]
fn a_late_try_of_an_attempt_that_was_given_up_is_taken_back() {
    let servers = servers(3);
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
    let client = ClientOptions::new().io_timeout(ms(300)).open_nodes(proxies.iter().map(Proxy::url)).unwrap();
    let lock = warm(&client, ms(4000));
    for proxy in &proxies[..2] {
        proxy.rule(Way::Request, Fate::Hold, 1, calls(TRY));
    }
    let error = lock.try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let released: usize = proxies[..2].iter().map(Proxy::release).sum();
    assert_eq!(released, 2);
    eventually(LONG, "nothing is left", || servers.iter().all(|server| value(server).is_none()));
    assert!(lock.try_lock().is_ok());
}

#[test]
fn a_hold_can_be_taken_over_by_its_token_and_ended_by_force() {
    let servers = servers(3);
    let client = client(&servers);
    let lock = warm(&client, ms(3000));
    let guard = lock.lock().unwrap();
    let fence = guard.fence();
    let token = guard.into_token().unwrap();
    let guard = lock.resume(&token).unwrap();
    assert!(guard.fence() > fence && guard.token() == token);
    assert!(lock.force_unlock().unwrap());
    assert!(!lock.force_unlock().unwrap());
    assert!(guard.wait_lost_for(ms(3000)));
    assert_eq!(lock.resume(&token).unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn guarded_writes_are_refused_with_what_to_do() {
    let servers = servers(3);
    let guard = lock(&client(&servers), ms(3000)).lock().unwrap();
    let error = guard.exec(distlock::redis::pipe().set("data", 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(format!("{error} {source}").contains("FenceGate"), "{error} {source}");
    assert!(guard.is_valid());
}

#[test]
fn ping_wants_a_majority() {
    let mut servers = servers(3);
    let client = client(&servers);
    client.ping().unwrap();
    servers[0].kill();
    client.ping().unwrap();
    servers[1].kill();
    assert_eq!(client.ping().unwrap_err().kind(), ErrorKind::Unreachable);
}

#[test]
fn nodes_that_cannot_be_are_refused_by_name() {
    let open = |nodes: &[&str]| ClientOptions::new().open_nodes(nodes.iter().copied()).unwrap_err();
    let (a, b, c) = ("redis://127.0.0.1:7001/", "redis://127.0.0.1:7002/", "redis://127.0.0.1:7003/");
    for (nodes, says) in [
        (vec![], "0 nodes"),
        (vec![a], "1 nodes"),
        (vec![a, b], "2 nodes"),
        (vec![a, b, a], "127.0.0.1:7001 is there twice"),
        (vec![a, b, "nonsense"], "address"),
        (vec![a, b, c, "redis://127.0.0.1:7004/"], "4 nodes"),
    ] {
        let error = open(&nodes);
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_release_reaches_a_node_that_was_away_when_it_is_back_before_the_lease_ends() {
    let servers = servers(3);
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
    let client = ClientOptions::new().io_timeout(ms(300)).open_nodes(proxies.iter().map(Proxy::url)).unwrap();
    let lock = warm(&client, ms(8000));
    let guard = lock.lock().unwrap();
    eventually(LONG, "all have it", || standing(&servers, &guard) == 3);
    proxies[2].rule(Way::Request, Fate::Lose, 1, calls(RELEASE));
    guard.unlock().unwrap();
    eventually(ms(4000), "released there, too", || value(&servers[2]).is_none());
}

#[test]
fn cut_off_from_a_majority_a_lock_is_lost_by_the_clock_before_another_has_it() {
    let servers = servers(3);
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
    let cut_off = ClientOptions::new().io_timeout(ms(300)).open_nodes(proxies.iter().map(Proxy::url)).unwrap();
    let (one, other) = (warm(&cut_off, ms(1500)), lock(&client(&servers), ms(1500)));
    let guard = one.lock().unwrap();
    assert!(!guard.wait_lost_for(ms(3000)), "renewed");
    for proxy in &proxies[..2] {
        proxy.block(Way::Request);
        proxy.block(Way::Reply);
    }
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.try_lock_for(LONG).unwrap());
        assert!(guard.wait_lost_for(ms(1500) + SLACK));
        let lost = Instant::now();
        assert!(!guard.is_valid());
        let next = waiting.join().unwrap();
        assert!(next.fence() > guard.fence());
        assert!(lost.elapsed() < ms(1500) + SLACK);
    });
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn a_partition_from_a_minority_is_not_noticed() {
    let servers = servers(5);
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
    let client = ClientOptions::new().io_timeout(ms(300)).open_nodes(proxies.iter().map(Proxy::url)).unwrap();
    let lock = warm(&client, ms(1500));
    let guard = lock.lock().unwrap();
    for proxy in &proxies[3..] {
        proxy.block(Way::Request);
        proxy.block(Way::Reply);
    }
    assert!(!guard.wait_lost_for(ms(5000)));
    guard.unlock().unwrap();
    let fence = lock.try_lock().unwrap().fence();
    proxies.iter().for_each(Proxy::heal);
    assert!(lock.try_lock_for(LONG).unwrap().fence() > fence);
}

#[test]
fn clocks_that_are_hours_apart_make_no_fence_that_falls() {
    let servers = servers(3);
    let hour = 3_600_000_000_u64;
    let now = servers[0].ask::<(u64, u64)>(&["TIME"]).0 * 1_000_000;
    // As servers would have left it whose clocks stand so far ahead, and were set right.
    for (server, ahead) in servers.iter().zip([0, hour, 5 * hour]) {
        let _: () = server.ask(&["SET", "distlock:fence:{k}", &(now + ahead).to_string()]);
    }
    let clients = [client(&servers), client(&servers)];
    let mut last = 0;
    for i in 0..12 {
        servers[i % 3].pause();
        let guard = lock(&clients[i % 2], ms(3000)).try_lock_for(LONG).unwrap();
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        last = guard.fence();
        servers[i % 3].resume();
        guard.unlock().unwrap();
    }
}

#[test]
fn a_hold_by_token_is_a_majoritys_and_becomes_a_guard() {
    let servers = servers(3);
    let manager = LockManager::new();
    manager.add("s", &client(&servers)).unwrap();
    let other = warm(&client(&servers), ms(2000));
    let minute = Duration::from_secs(60);
    // Of a slow node nobody waits for the answer: the others are a majority.
    let on = |token: &str| servers.iter().filter(|server| value(server).as_deref() == Some(token)).count();
    assert!(manager.add_lock("s", "k", "mine", minute).unwrap());
    assert!(on("mine") >= 2);
    assert!(manager.add_lock("s", "k", "mine", minute).unwrap(), "again");
    assert!(!manager.add_lock("s", "k", "yours", minute).unwrap());
    assert!(other.try_lock().unwrap_err().is_taken());
    assert!(manager.is_held_by("s", "k", "mine").unwrap() && !manager.is_held_by("s", "k", "yours").unwrap());
    assert!(!manager.release_lock("s", "k", "yours").unwrap());
    let guard = other.resume("mine").unwrap();
    guard.unlock().unwrap();
    assert!(!manager.release_lock("s", "k", "mine").unwrap());
    assert!(on("mine") <= 1);
    assert!(manager.add_lock("s", "k", "next", minute).unwrap());
    assert!(manager.release_lock("s", "k", "next").unwrap());
    assert!(on("next") <= 1);
    other.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_timestamp_lock_is_one_servers() {
    let servers = servers(3);
    let error = TimestampLock::new(&client(&servers), "k").try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error:?}");
    assert!(servers.iter().all(|server| value(server).is_none()));
}

#[test]
fn threads_that_share_one_connection_a_node_do_not_wait_for_each_other_in_a_circle() {
    let mut servers = servers(3);
    let client = ClientOptions::new().max_connections(1).open_nodes(servers.iter().map(Server::url)).unwrap();
    drop(warm(&client, ms(5000)));
    let slowest = Mutex::new(Duration::ZERO);
    thread::scope(|scope| {
        for i in 0..8 {
            let (client, slowest) = (&client, &slowest);
            scope.spawn(move || {
                for round in 0..40 {
                    let lock = DistLock::new(client, format!("k{i} {round}"));
                    let start = Instant::now();
                    lock.try_lock_for(LONG).unwrap().unlock().unwrap();
                    let mut slowest = slowest.lock().unwrap();
                    *slowest = start.elapsed().max(*slowest);
                }
            });
        }
        // Who is asked first changes.
        thread::sleep(ms(30));
        servers[0].kill();
        thread::sleep(ms(100));
        servers[0].restart();
    });
    assert!(slowest.into_inner().unwrap() < ms(1000), "waited out an I/O timeout");
}
