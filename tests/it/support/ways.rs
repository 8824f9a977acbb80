//! The ways of building a client. A law is written once and run on each of them, side by side, every
//! way with a server of its own, one of them with the demo server of the examples; with the feature
//! `testing` on the fake, too, which has none.

use std::{
    io,
    net::{Shutdown, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use distlock::{
    ClientOptions, DistLock, LockClient, LockOptions,
    r2d2::{ManageConnection, Pool},
    redis::{self, Client, RedisResult, Value},
};

#[cfg(feature = "testing")]
use super::on_fake::OnFake;
use super::{Fate, Proxy, Server, eventually, wrapping::Wrapping};
use crate::demo_server::DemoServer;

struct Plan {
    name: &'static str,
    place: Place,
    /// What may become of a message without its call waiting for ever.
    fates: &'static [Fate],
    /// Has a subscription.
    hears: bool,
    open: fn(&str) -> LockClient,
}

impl Plan {
    /// Can a proxy stand in between, and read what is said?
    fn is_readable(&self) -> bool {
        match self.place {
            #[cfg(feature = "tls-rustls")]
            Place::Tls => false,
            // There a node does not change what it says of its own port, and clients would go past the proxy.
            Place::Cluster => !super::server::is_6(),
            _ => true,
        }
    }
}

const fn own(name: &'static str, place: Place, open: fn(&str) -> LockClient) -> Plan {
    Plan { name, place, fates: &[Fate::Lose, Fate::Cut, Fate::Halve], hears: true, open }
}

/// Its time limits are those of its manager, and these have none: a reply that never comes is waited for.
const fn given(name: &'static str, open: fn(&str) -> LockClient) -> Plan {
    Plan { name, place: Place::Tcp, fates: &[Fate::Cut], hears: false, open }
}

const WAYS: &[Plan] = &[
    own("open", Place::Tcp, |url| LockClient::open(url).unwrap()),
    own("one connection", Place::Tcp, |url| ClientOptions::new().max_connections(1).open(url).unwrap()),
    own("password and database", Place::Password, |url| LockClient::open(url).unwrap()),
    own("unix socket", Place::Socket, |url| LockClient::open(url).unwrap()),
    given("given pool", |url| LockClient::from_pool(pool(plain(url), 4))),
    given("given pool of one", |url| LockClient::from_pool(pool(plain(url), 1))),
    given("given pool of wrappers", |url| LockClient::from_pool(pool(Wrapping(plain(url)), 4))),
    own("demo server", Place::Demo, |url| LockClient::open(url).unwrap()),
    Plan { hears: false, ..own("cluster", Place::Cluster, |url| ClientOptions::new().open_cluster([url]).unwrap()) },
    #[cfg(feature = "tls-rustls")]
    own("tls", Place::Tls, |url| LockClient::open(super::tls::trusting(url)).unwrap()),
];

#[derive(Clone, Copy)]
enum Place {
    Tcp,
    Password,
    Socket,
    /// One node that serves all slots.
    Cluster,
    /// With a certificate that the test made.
    #[cfg(feature = "tls-rustls")]
    Tls,
    /// Of the examples: the laws keep it to what a real server does.
    Demo,
}

/// One way of building a client, with what it talks to.
pub(crate) enum Way {
    Server(OnServer),
    #[cfg(feature = "testing")]
    Fake(OnFake),
}

/// Ends with the value.
enum Running {
    Real(Mutex<Server>),
    Demo(DemoServer),
}

pub(crate) struct OnServer {
    running: Running,
    /// Where clients connect to, and where the test does.
    url: String,
    direct: String,
    sockets: Vec<PathBuf>,
    plan: &'static Plan,
}

/// Runs a law on every way, and says on which it is broken.
#[track_caller]
pub(crate) fn every_way(law: impl Fn(&Way) + Sync) {
    side_by_side(servers().chain(fake()), |way| law(&way));
}

/// The same for a law that counts what a server does, or does to it what cannot be done to the fake.
#[track_caller]
pub(crate) fn every_server(law: impl Fn(&Way) + Sync) {
    side_by_side(servers(), |way| law(&way));
}

/// The same for a law about servers that are killed or replicas, which the demo server never is.
#[track_caller]
pub(crate) fn every_real_server(law: impl Fn(&Way) + Sync) {
    side_by_side(servers().filter(|(_, way)| !way.is_demo()), |way| law(&way));
}

/// The same with a proxy between the way's clients and its server.
#[track_caller]
pub(crate) fn every_server_through_a_proxy(law: impl Fn(&Way, &Proxy) + Sync) {
    side_by_side(servers().filter(|(_, way)| way.on_server().plan.is_readable()), |mut way| {
        let proxy = way.on_server_mut().put_behind_a_proxy();
        law(&way, &proxy);
    });
}

fn servers() -> impl Iterator<Item = (&'static str, Way)> {
    WAYS.iter().map(|plan| (plan.name, Way::Server(OnServer::at(plan))))
}

#[cfg(feature = "testing")]
fn fake() -> Option<(&'static str, Way)> {
    Some(("fake", Way::Fake(OnFake::new())))
}

#[cfg(not(feature = "testing"))]
fn fake() -> Option<(&'static str, Way)> {
    None
}

#[track_caller]
fn side_by_side(ways: impl Iterator<Item = (&'static str, Way)>, run: impl Fn(Way) + Sync) {
    let broken: Vec<&str> = thread::scope(|scope| {
        let run = &run;
        let begin = |(name, way): (&'static str, Way)| {
            // A panic's message begins with the thread's name.
            let builder = thread::Builder::new().name(name.to_owned());
            (name, builder.spawn_scoped(scope, move || run(way)).expect("a thread"))
        };
        let threads: Vec<_> = ways.map(begin).collect();
        threads.into_iter().filter_map(|(name, thread)| thread.join().is_err().then_some(name)).collect()
    });
    assert!(broken.is_empty(), "broken on: {}", broken.join(", "));
}

impl OnServer {
    fn at(plan: &'static Plan) -> OnServer {
        let real = |server| Running::Real(Mutex::new(server));
        let (running, url, sockets) = match plan.place {
            Place::Tcp => {
                let server = Server::start();
                let url = server.url();
                (real(server), url, Vec::new())
            }
            Place::Password => {
                let server = Server::with(&["--requirepass", "s3cret"]);
                let url = format!("redis://:s3cret@127.0.0.1:{}/3", server.port());
                (real(server), url, Vec::new())
            }
            Place::Socket => {
                let path = socket_path();
                let server = Server::with(&["--unixsocket", text(&path)]);
                eventually(Duration::from_secs(5), "the socket is there", || UnixStream::connect(&path).is_ok());
                (real(server), format!("unix://{}", text(&path)), vec![path])
            }
            #[cfg(feature = "tls-rustls")]
            Place::Tls => {
                let (server, url) = super::tls::server();
                return OnServer { direct: server.url(), running: real(server), url, sockets: Vec::new(), plan };
            }
            Place::Cluster => {
                let server = Server::with(&["--cluster-enabled", "yes"]);
                server.serve(0..=16383);
                eventually(Duration::from_secs(5), "the cluster is up", || {
                    server.ask::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                });
                let url = server.url();
                (real(server), url, Vec::new())
            }
            Place::Demo => {
                let server = DemoServer::start().expect("a free port");
                let url = server.url();
                (Running::Demo(server), url, Vec::new())
            }
        };
        OnServer { running, direct: url.clone(), url, sockets, plan }
    }

    fn put_behind_a_proxy(&mut self) -> Proxy {
        let server = match &self.running {
            Running::Real(_) => self.real().port(),
            Running::Demo(server) => server.port(),
        };
        let proxy = Proxy::to(server);
        if matches!(self.plan.place, Place::Cluster) {
            // Where the node says that it is.
            let () = self.real().ask(&["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]);
        }
        self.url = match self.plan.place {
            Place::Tcp | Place::Password | Place::Cluster | Place::Demo => {
                self.url.replace(&format!(":{server}/"), &format!(":{}/", proxy.port()))
            }
            #[cfg(feature = "tls-rustls")]
            Place::Tls => panic!("a proxy reads no ciphers"),
            Place::Socket => {
                let path = socket_path();
                relay(&path, proxy.port());
                let url = format!("unix://{}", text(&path));
                self.sockets.push(path);
                url
            }
        };
        proxy
    }

    fn real(&self) -> MutexGuard<'_, Server> {
        match &self.running {
            Running::Real(server) => server.lock().unwrap_or_else(|poisoned| poisoned.into_inner()),
            Running::Demo(_) => panic!("a law of every_real_server"),
        }
    }

    fn ask(&self, parts: &[&str]) -> RedisResult<Value> {
        let mut connection = plain(&self.direct).get_connection_with_timeout(Duration::from_secs(5))?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        redis::cmd(parts[0]).arg(&parts[1..]).query(&mut connection)
    }
}

impl Way {
    fn on_server(&self) -> &OnServer {
        match self {
            Way::Server(at) => at,
            #[cfg(feature = "testing")]
            Way::Fake(_) => panic!("the fake has no server"),
        }
    }

    fn on_server_mut(&mut self) -> &mut OnServer {
        match self {
            Way::Server(at) => at,
            #[cfg(feature = "testing")]
            Way::Fake(_) => panic!("the fake has no server"),
        }
    }

    /// What may become of a message on this way.
    pub(crate) fn fates(&self) -> &'static [Fate] {
        self.on_server().plan.fates
    }

    /// Its server, to be paused, killed and started again.
    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        self.on_server().real()
    }

    /// Does its client hear when it is granted a lock? On a given pool it has no connection for that.
    pub(crate) fn waits_in_turn(&self) -> bool {
        match self {
            Way::Server(at) => at.plan.hears,
            #[cfg(feature = "testing")]
            Way::Fake(_) => false,
        }
    }

    pub(crate) fn is_of_a_cluster(&self) -> bool {
        matches!(self.on_server().plan.place, Place::Cluster)
    }

    fn is_demo(&self) -> bool {
        matches!(self.on_server().running, Running::Demo(_))
    }

    /// A client of its own: nothing is shared with another.
    pub(crate) fn client(&self) -> LockClient {
        match self {
            Way::Server(at) => (at.plan.open)(&at.url),
            #[cfg(feature = "testing")]
            Way::Fake(fake) => fake.client(),
        }
    }

    /// A lock of a client of its own.
    pub(crate) fn lock(&self, key: &str, options: &LockOptions) -> DistLock {
        DistLock::with_options(&self.client(), key, options).unwrap()
    }

    /// One command past the crate under test, in the same database.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, parts: &[&str]) -> T {
        self.try_ask(parts).unwrap_or_else(|e| panic!("{parts:?}: {e}"))
    }

    pub(crate) fn try_ask<T: redis::FromRedisValue>(&self, parts: &[&str]) -> RedisResult<T> {
        let answer = match self {
            Way::Server(at) => at.ask(parts)?,
            #[cfg(feature = "testing")]
            Way::Fake(fake) => fake.ask(parts),
        };
        Ok(redis::from_redis_value(answer)?)
    }

    pub(crate) fn value(&self, key: &str) -> Option<String> {
        self.ask(&["GET", key])
    }

    /// How many script calls the server has executed.
    pub(crate) fn script_calls(&self) -> u64 {
        script_calls(&self.ask::<String>(&["INFO", "commandstats"]))
    }

    /// Every key that is no fence; a fake, which lists none, is asked for the one that laws use.
    pub(crate) fn left_over(&self) -> Vec<String> {
        #[cfg(feature = "testing")]
        if let Way::Fake(_) = self {
            return self.value("k").map(|_| "k".to_owned()).into_iter().collect();
        }
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.retain(|key| !key.starts_with("distlock:fence"));
        keys
    }
}

impl Drop for OnServer {
    fn drop(&mut self) {
        for path in &self.sockets {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Calls of EVALSHA and EVAL in the answer of `INFO commandstats`.
pub(crate) fn script_calls(stats: &str) -> u64 {
    let calls = |line: &str| {
        let line = line.strip_prefix("cmdstat_evalsha:calls=").or_else(|| line.strip_prefix("cmdstat_eval:calls="))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    stats.lines().filter_map(calls).sum()
}

fn socket_path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("distlock-{}-{}.sock", std::process::id(), COUNT.fetch_add(1, Relaxed));
    std::env::temp_dir().join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Leads every connection to a socket on to a port, byte by byte.
fn relay(path: &Path, port: u16) {
    let listener = UnixListener::bind(path).expect("a socket");
    thread::spawn(move || {
        for inner in listener.incoming().flatten() {
            let Ok(outer) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            let (Ok(inner_end), Ok(outer_end)) = (inner.try_clone(), outer.try_clone()) else { continue };
            thread::spawn(move || {
                let _ = io::copy(&mut &inner, &mut &outer);
                let _ = outer.shutdown(Shutdown::Both);
            });
            thread::spawn(move || {
                let _ = io::copy(&mut &outer_end, &mut &inner_end);
                let _ = inner_end.shutdown(Shutdown::Both);
            });
        }
    });
}

fn plain(url: &str) -> Client {
    Client::open(url).expect("an address")
}

fn pool<M: ManageConnection>(manager: M, size: u32) -> Pool<M> {
    let builder = Pool::builder().max_size(size).min_idle(Some(0)).connection_timeout(Duration::from_secs(5));
    builder.build(manager).expect("a pool")
}
