//! A master that Sentinels watch, with replicas: a failover is waited through, and what the new master
//! knows is kept.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient, LockOptions};

use crate::support::server::NOBODY;
use crate::support::{SLACK, Server, eventually, lock};

const LONG: Duration = Duration::from_secs(30);
const IO: Duration = Duration::from_millis(500);
/// From the promotion until everybody goes on.
const PROMISED: Duration = Duration::from_secs(3);

/// Three Sentinels, a master, and replicas of it.
struct Deployment {
    master: Server,
    replicas: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Deployment {
    fn start(replicas: usize) -> Deployment {
        let master = Server::start();
        let port = master.port().to_string();
        let replicas: Vec<_> = (0..replicas).map(|_| master.replica()).collect();
        let sentinels = [(); 3].map(|()| Server::with(&["--sentinel"])).into();
        let deployment = Deployment { master, replicas, sentinels };
        for one in &deployment.sentinels {
            let _: () = one.ask(&["SENTINEL", "MONITOR", "mymaster", "127.0.0.1", &port, "2"]);
            for (what, value) in [("down-after-milliseconds", "500"), ("failover-timeout", "5000")] {
                let _: () = one.ask(&["SENTINEL", "SET", "mymaster", what, value]);
            }
        }
        for one in &deployment.sentinels {
            let knows = |what: &str| one.ask::<Vec<redis::Value>>(&["SENTINEL", what, "mymaster"]).len();
            eventually(LONG, "the Sentinels know each other and the replicas", || {
                knows("SENTINELS") == 2 && knows("REPLICAS") == deployment.replicas.len()
            });
        }
        deployment
    }

    fn addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    fn client(&self) -> LockClient {
        self.client_with(&ClientOptions::new())
    }

    fn clients(&self) -> [LockClient; 8] {
        [(); 8].map(|()| self.client())
    }

    fn client_with(&self, options: &ClientOptions) -> LockClient {
        options.clone().io_timeout(IO).open_sentinel(self.addresses(), "redis://mymaster/").unwrap()
    }

    /// The replica that became the master, once it did.
    fn promoted(&self) -> &Server {
        let found = || self.replicas.iter().find(|replica| info(replica).contains("role:master"));
        eventually(LONG, "a replica is promoted", || found().is_some());
        found().unwrap()
    }
}

/// What a server says of its replication; nothing while it changes its role, which closes connections.
fn info(server: &Server) -> String {
    let connection = redis::Client::open(server.url()).and_then(|client| client.get_connection_with_timeout(LONG));
    let info = connection.and_then(|mut connection| redis::cmd("INFO").arg("replication").query(&mut connection));
    info.unwrap_or_default()
}

/// One command to a server that may be changing its role, which closes connections: once it is answered.
fn ask<T: redis::FromRedisValue>(server: &Server, parts: &[&str]) -> T {
    let mut answer = None;
    eventually(LONG, "an answer", || {
        let connection = redis::Client::open(server.url()).and_then(|client| client.get_connection_with_timeout(LONG));
        let asked = connection.and_then(|mut connection| {
            parts[1..].iter().fold(&mut redis::cmd(parts[0]), |command, part| command.arg(part)).query(&mut connection)
        });
        answer = asked.ok();
        answer.is_some()
    });
    answer.expect("an answer")
}

/// Ends the sections, also when the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A section of one of the clients.
struct Section {
    client: usize,
    fence: u64,
    at: Instant,
}

/// Eight clients contend for a lock until `PROMISED` after `fail` says that the promotion is through.
fn contend(clients: &[LockClient; 8], fail: impl FnOnce()) {
    let (sections, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let before = thread::scope(|scope| {
        let _ending = Ending(&over);
        for (i, client) in clients.iter().enumerate() {
            let (sections, over) = (&sections, &over);
            scope.spawn(move || {
                let options = LockOptions::new().ttl(Duration::from_millis(900));
                let lock = DistLock::with_options(client, "contended", &options).unwrap();
                while !over.load(Relaxed) {
                    let guard = lock.lock().expect("a failover is waited through");
                    let section = Section { client: i, fence: guard.fence(), at: Instant::now() };
                    self::lock(sections).push(section);
                    thread::sleep(Duration::from_millis(2));
                    if let Err(e) = guard.unlock() {
                        assert_eq!(e.kind(), ErrorKind::Lost, "{e:?}");
                    }
                }
            });
        }
        eventually(LONG, "all take part", || {
            let sections = self::lock(&sections);
            (0..8).all(|i| sections.iter().filter(|section: &&Section| section.client == i).count() > 3)
        });
        let before = Instant::now();
        fail();
        let promoted = Instant::now();
        thread::sleep((promoted + PROMISED).saturating_duration_since(Instant::now()));
        (before, promoted)
    });
    let ((before, promoted), sections) = (before, sections.into_inner().unwrap());
    for i in 0..8 {
        let late = |section: &&Section| section.at > promoted && section.at < promoted + PROMISED + SLACK;
        assert!(sections.iter().filter(late).any(|section| section.client == i), "client {i} does not go on");
    }
    let highest = sections.iter().filter(|section| section.at < before).map(|section| section.fence).max();
    let lowest = sections.iter().filter(|section| section.at > promoted).map(|section| section.fence).min();
    assert!(highest < lowest, "{highest:?} before and {lowest:?} after");
    let mut fences: Vec<_> = sections.iter().map(|section| section.fence).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), sections.len(), "a fence came twice");
}

#[test]
fn eight_clients_go_on_when_the_master_is_killed_and_a_held_lock_is_kept() {
    let mut deployment = Deployment::start(2);
    let client = deployment.client_with(&ClientOptions::new().min_replicas(2));
    let options = LockOptions::new().ttl(Duration::from_secs(12));
    let held = DistLock::with_options(&client, "held", &options).unwrap().lock().unwrap();
    contend(&deployment.clients(), || {
        deployment.master.kill();
        let _ = deployment.promoted();
    });
    let promoted = deployment.promoted();
    assert_eq!(ask::<Option<String>>(promoted, &["GET", "held"]).as_deref(), Some(held.token()));
    // Renewed there: the first lease would be over.
    let left = || ask::<i64>(promoted, &["PTTL", "held"]);
    eventually(LONG, "renewed", || left() > 10_000);
    assert!(held.is_valid());
    held.unlock().unwrap();
    assert_eq!(ask::<Option<String>>(promoted, &["GET", "held"]), None);
}

#[test]
fn eight_clients_go_on_when_an_operator_changes_the_master() {
    let deployment = Deployment::start(1);
    let client = deployment.client();
    let held = DistLock::new(&client, "held").lock().unwrap();
    contend(&deployment.clients(), || {
        let _: () = deployment.sentinels[0].ask(&["SENTINEL", "FAILOVER", "mymaster"]);
        let _ = deployment.promoted();
    });
    eventually(LONG, "the old master follows", || info(&deployment.master).contains("role:slave"));
    assert!(held.is_valid());
    held.unlock().unwrap();
    assert_eq!(ask::<Option<String>>(deployment.promoted(), &["GET", "held"]), None);
    let clients = || ask::<String>(&deployment.master, &["CLIENT", "LIST"]);
    eventually(LONG, "nobody of ours is there any more", || !clients().contains("name=distlock:mymaster"));
}

#[test]
fn a_master_that_is_silent_is_left_for_the_new_one() {
    let deployment = Deployment::start(1);
    contend(&deployment.clients(), || {
        deployment.master.pause();
        let _ = deployment.promoted();
    });
    deployment.master.resume();
}

/// A Sentinel that calls this server the master.
fn sentinel_of(master: &Server) -> Server {
    let sentinel = Server::with(&["--sentinel"]);
    monitor(&sentinel, master);
    sentinel
}

fn monitor(sentinel: &Server, master: &Server) {
    let _: () = sentinel.ask(&["SENTINEL", "MONITOR", "mymaster", "127.0.0.1", &master.port().to_string(), "1"]);
}

#[test]
fn a_demoted_master_that_closes_no_connection_is_left_by_waiters_too() {
    let (old, new) = (Server::start(), Server::start());
    let sentinel = sentinel_of(&old);
    let open = || ClientOptions::new().open_sentinel([sentinel.url()], "redis://mymaster/").unwrap();
    let (mine, theirs) = (open(), open());
    let hand_over = |server: &Server| {
        let guard = DistLock::new(&mine, "k").lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| DistLock::new(&theirs, "k").lock().map(drop));
            eventually(LONG, "in the queue", || server.ask::<i64>(&["ZCARD", "distlock:queue:{k}"]) == 1);
            let listened = || server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "distlock:client:*"]);
            eventually(LONG, "it listens there", || !listened().is_empty());
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
    };
    hand_over(&old);
    let _: () = sentinel.ask(&["SENTINEL", "REMOVE", "mymaster"]);
    monitor(&sentinel, &new);
    let _: () = old.ask(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    hand_over(&new);
    let listened = || old.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "distlock:client:*"]);
    eventually(LONG, "nobody listens at the old one", || listened().is_empty());
}

#[test]
fn a_replica_that_a_sentinel_calls_the_master_is_not_believed() {
    let server = Server::start();
    let sentinel = sentinel_of(&server);
    let client = ClientOptions::new().open_sentinel([sentinel.url()], "redis://mymaster/").unwrap();
    let _: () = server.ask(&["SET", "k", "somebody", "PX", "60000"]);
    assert!(DistLock::new(&client, "k").try_lock().unwrap_err().is_taken());
    let _: () = server.ask(&["REPLICAOF", "127.0.0.1", &NOBODY.to_string()]);
    let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    // To read the key it need not be a master.
    let error = DistLock::new(&client, "k").try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[test]
fn sentinels_that_are_away_or_silent_are_passed_over_in_time() {
    let deployment = Deployment::start(1);
    let mut addresses = deployment.addresses();
    addresses.insert(0, format!("redis://127.0.0.1:{NOBODY}/"));
    deployment.sentinels[0].pause();
    let client = ClientOptions::new().io_timeout(IO).open_sentinel(addresses, "redis://mymaster/").unwrap();
    let start = Instant::now();
    client.ping().unwrap();
    assert!(start.elapsed() < IO + SLACK);
    deployment.sentinels[0].resume();
    // And all of them: an error in time, and no wait without end.
    deployment.sentinels.iter().for_each(Server::pause);
    let client = deployment.client();
    let start = Instant::now();
    assert_eq!(DistLock::new(&client, "k").try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    assert!(start.elapsed() < IO + SLACK, "{:?}", start.elapsed());
    deployment.sentinels.iter().for_each(Server::resume);
    assert!(DistLock::new(&client, "k").try_lock_for(LONG).is_ok());
}

#[test]
fn a_service_that_no_sentinel_knows_is_named_and_so_is_a_server_that_is_no_sentinel() {
    let (sentinel, server) = (Server::with(&["--sentinel"]), Server::start());
    let table = [
        (&sentinel, ErrorKind::InvalidOption, "no master is called \"mymaster\" there"),
        (&server, ErrorKind::Protocol, "no Sentinel listens there"),
    ];
    for (place, kind, words) in table {
        let client = ClientOptions::new().io_timeout(IO).open_sentinel([place.url()], "redis://mymaster/").unwrap();
        let error = client.ping().unwrap_err();
        assert!(error.kind() == kind && format!("{error:?}").contains(words), "{error:?}");
        assert_eq!(DistLock::new(&client, "k").lock().unwrap_err().kind(), kind);
    }
    let none: [&str; 0] = [];
    let error = ClientOptions::new().open_sentinel(none, "redis://mymaster/").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
}

#[test]
fn sentinels_and_their_master_have_credentials_of_their_own() {
    let sentinel = Server::with(&["--sentinel", "--requirepass", "of-the-sentinel"]);
    let master = Server::with(&["--requirepass", "of-the-master"]);
    let port = master.port().to_string();
    let told = format!("redis://:of-the-sentinel@127.0.0.1:{}/", sentinel.port());
    let mut connection = redis::Client::open(told.as_str()).unwrap().get_connection().unwrap();
    let () =
        redis::cmd("SENTINEL").arg(&["MONITOR", "mymaster", "127.0.0.1", &port, "1"]).query(&mut connection).unwrap();
    let open = |sentinel: &str, master: &str| ClientOptions::new().open_sentinel([sentinel], master).unwrap();
    let good = "redis://:of-the-master@mymaster/2";
    open(&told, good).ping().unwrap();
    // A user who may ask the one thing that is asked.
    let rule = ["SETUSER", "asker", "on", ">little", "-@all", "+sentinel|get-master-addr-by-name"];
    let () = redis::cmd("ACL").arg(&rule).query(&mut connection).unwrap();
    open(&told.replace(":of-the-sentinel", "asker:little"), good).ping().unwrap();
    let bare = sentinel.url();
    for client in [open(&bare, good), open(&told, "redis://mymaster/"), open(&told, "redis://:other@mymaster/")] {
        assert_eq!(client.ping().unwrap_err().kind(), ErrorKind::Denied);
    }
}
