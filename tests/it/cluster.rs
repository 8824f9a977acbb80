//! A cluster of three nodes: locks on all of them, slots that move, nodes that fail. (The laws run on a
//! cluster of one.)

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, DistLockGuard, ErrorKind, LockClient, LockOptions};

use crate::support::{SLACK, Server, eventually};

const LONG: Duration = Duration::from_secs(30);
const IO: Duration = Duration::from_millis(400);

struct Cluster(Vec<Server>);

impl Cluster {
    fn start() -> Cluster {
        let nodes: Vec<_> = (0..3).map(|_| node()).collect();
        for (node, slots) in nodes.iter().zip([0..=5460, 5461..=10922, 10923..=16383]) {
            node.serve(slots);
            let _: () = node.ask(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port().to_string()]);
        }
        let cluster = Cluster(nodes);
        cluster.settle();
        cluster
    }

    fn settle(&self) {
        for node in &self.0 {
            let info = || node.ask::<String>(&["CLUSTER", "INFO"]);
            let known = format!("cluster_known_nodes:{}", self.0.len());
            eventually(LONG, "the cluster is whole", || {
                info().contains("cluster_state:ok") && info().contains("cluster_size:3") && info().contains(&known)
            });
        }
    }

    fn client(&self) -> LockClient {
        ClientOptions::new().io_timeout(IO).open_cluster(self.0.iter().map(Server::url)).unwrap()
    }

    /// Which node serves the key.
    fn serving(&self, key: &str) -> usize {
        let slot: u16 = self.0[0].ask(&["CLUSTER", "KEYSLOT", key]);
        usize::from(slot > 5460) + usize::from(slot > 10922)
    }

    fn value(&self, node: usize, key: &str) -> Option<String> {
        self.0[node].ask(&["GET", key])
    }

    /// The slot of the key begins to move; its number.
    fn begin_move(&self, key: &str, from: usize, to: usize) -> String {
        let slot = self.0[0].ask::<u16>(&["CLUSTER", "KEYSLOT", key]).to_string();
        let _: () = self.0[to].ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(&self.0[from])]);
        let _: () = self.0[from].ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(&self.0[to])]);
        slot
    }

    fn end_move(&self, slot: &str, from: usize, to: usize) {
        let port = self.0[to].port().to_string();
        for key in self.0[from].ask::<Vec<String>>(&["CLUSTER", "GETKEYSINSLOT", slot, "100"]) {
            let _: redis::Value = self.0[from].ask(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
        }
        for node in [to, from] {
            let _: () = self.0[node].ask(&["CLUSTER", "SETSLOT", slot, "NODE", &id(&self.0[to])]);
        }
    }
}

fn node() -> Server {
    Server::with(&["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"])
}

fn id(node: &Server) -> String {
    node.ask(&["CLUSTER", "MYID"])
}

fn short() -> LockOptions {
    LockOptions::new().ttl(Duration::from_millis(900))
}

fn hold(client: &LockClient, key: &str, options: &LockOptions) -> DistLockGuard {
    DistLock::with_options(client, key, options).unwrap().lock().unwrap()
}

#[test]
fn locks_lie_on_every_node_of_a_cluster_and_exclude_each_other_there() {
    let cluster = Cluster::start();
    let clients = [(); 4].map(|()| cluster.client());
    clients[0].ping().unwrap();
    let keys: Vec<_> = (0..12).map(|i| format!("k{i}")).collect();
    let inside: Vec<_> = keys.iter().map(|_| AtomicBool::new(false)).collect();
    let highest: Vec<_> = keys.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                for _ in 0..20 {
                    for (i, key) in keys.iter().enumerate() {
                        let guard = DistLock::new(client, key).lock().unwrap();
                        assert!(!inside[i].swap(true, Relaxed), "two inside {key}");
                        assert!(highest[i].swap(guard.fence(), Relaxed) < guard.fence());
                        inside[i].store(false, Relaxed);
                        guard.unlock().unwrap();
                    }
                }
            });
        }
    });
    let used: Vec<usize> = keys.iter().map(|key| cluster.serving(key)).collect();
    assert!((0..3).all(|node| used.contains(&node)), "{used:?}");
    assert!(keys.iter().zip(used).all(|(key, node)| cluster.value(node, key).is_none()), "all are free");
}

#[test]
fn a_slot_moves_to_another_node_under_a_held_lock() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let from = cluster.serving("k");
    let to = (from + 1) % 3;
    let guard = hold(&client, "k", &short());
    let slot = cluster.begin_move("k", from, to);
    cluster.end_move(&slot, from, to);
    assert!(!guard.wait_lost_for(Duration::from_secs(2)), "it is renewed where it is now");
    assert_eq!(cluster.value(to, "k").as_deref(), Some(guard.token()));
    let fence = guard.fence();
    guard.unlock().unwrap();
    assert_eq!(cluster.value(to, "k"), None);
    assert!(hold(&client, "k", &short()).fence() > fence);
}

#[test]
fn a_slot_on_its_way_is_waited_for() {
    let cluster = Cluster::start();
    let (client, from) = (cluster.client(), cluster.serving("k"));
    let to = (from + 1) % 3;
    let slot = cluster.begin_move("k", from, to);
    let lock = DistLock::new(&client, "k");
    let error = lock.try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(format!("{error:?}").contains("TRYAGAIN"), "asked where it goes: {error:?}");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.lock());
        thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        cluster.end_move(&slot, from, to);
        let guard = waiting.join().unwrap().unwrap();
        assert_eq!(cluster.value(to, "k").as_deref(), Some(guard.token()));
    });
}

#[test]
fn a_silent_node_costs_no_lock_that_lies_on_another() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let keys: Vec<_> = (0..30).map(|i| format!("k{i}")).collect();
    let options = LockOptions::new().ttl(Duration::from_secs(2));
    let guards: Vec<_> = keys.iter().map(|key| hold(&client, key, &options)).collect();
    let silent = 1;
    cluster.0[silent].pause();
    thread::sleep(Duration::from_secs(5));
    for (key, guard) in keys.iter().zip(&guards) {
        assert_eq!(guard.is_valid(), cluster.serving(key) != silent, "{key}");
    }
    let elsewhere = keys.iter().find(|key| cluster.serving(key) != silent).unwrap();
    let there = keys.iter().find(|key| cluster.serving(key) == silent).unwrap();
    let start = Instant::now();
    assert!(DistLock::new(&client, elsewhere).try_lock().unwrap_err().is_taken());
    assert_eq!(DistLock::new(&client, there).try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    assert!(start.elapsed() < 2 * IO + SLACK, "{:?}", start.elapsed());
    cluster.0[silent].resume();
    eventually(LONG, "free there", || DistLock::new(&client, there).try_lock().is_ok());
}

#[test]
fn a_replica_takes_over_a_node_and_the_locks_that_it_knows() {
    let mut cluster = Cluster::start();
    let from = cluster.serving("k");
    let replica = node();
    let _: () = replica.ask(&["CLUSTER", "MEET", "127.0.0.1", &cluster.0[0].port().to_string()]);
    cluster.0.push(replica);
    cluster.settle();
    let (client, replica) = (cluster.client(), &cluster.0[3]);
    let of = id(&cluster.0[from]);
    eventually(LONG, "it knows the node", || replica.ask::<String>(&["CLUSTER", "NODES"]).contains(&of));
    let _: () = replica.ask(&["CLUSTER", "REPLICATE", &of]);
    let guard = hold(&client, "k", &short());
    let info = |server: &Server| server.ask::<String>(&["INFO", "replication"]);
    eventually(LONG, "in step", || info(replica).contains("link_status:up") && replica.ask::<i64>(&["DBSIZE"]) >= 2);
    // The others vote for it only if they know what it is.
    let follows = format!("slave {of}");
    eventually(LONG, "all know it as a replica", || {
        cluster.0.iter().all(|node| node.ask::<String>(&["CLUSTER", "NODES"]).contains(&follows))
    });
    let _: () = replica.ask(&["CLUSTER", "FAILOVER"]);
    eventually(LONG, "it takes over", || info(replica).contains("role:master"));
    assert!(!guard.wait_lost_for(Duration::from_secs(2)), "it is renewed there");
    assert_eq!(cluster.value(3, "k").as_deref(), Some(guard.token()));
    guard.unlock().unwrap();
    assert_eq!(cluster.value(3, "k"), None);
    hold(&client, "k", &short()).unlock().unwrap();
}

#[test]
fn what_cannot_be_a_cluster_is_said_at_once() {
    let none: [&str; 0] = [];
    for nodes in [&none[..], &["redis://127.0.0.1/3"], &["unix:///nowhere.sock"]] {
        let error = ClientOptions::new().open_cluster(nodes.iter().copied()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{nodes:?}");
    }
    let server = Server::start();
    let error = ClientOptions::new().open_cluster([server.url()]).unwrap().ping().unwrap_err();
    assert!(format!("{error:?}").contains("cluster support disabled"), "{error:?}");
}
