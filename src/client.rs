//! The client: one deployment, and what its locks share.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use redis::{ConnectionAddr, ConnectionInfo, ConnectionLike, IntoConnectionInfo};

use crate::error::{self, Error, ErrorKind, Result};
use crate::keeping::Keeper;
#[cfg(unix)]
use crate::nodes::Quorum;
use crate::nodes::{Nodes, Single};
use crate::options::between;
use crate::server::{Address, Cluster, Given, Link, Pool, Sentinels};
use crate::waiting::{Listener, Locals};

/// A Redis deployment that locks live on, and what all locks made from it share: connections, a local
/// queue for each key, one thread that renews.
///
/// Make one a process and deployment, and clone it freely: clones are the same client. Two locks for
/// one key share a local queue only if they were made from clones of one client; they exclude each
/// other in any case, through Redis. A client may be dropped before its locks and guards.
///
/// After a `fork` a child process makes its own: what it inherited is inert there. Fork while no other
/// thread is inside a call: of a thread that the child does not get, any library may leave it a mutex that
/// is locked for ever. (Threads that sleep do no harm, be it in a `lock()` that has to wait.)
///
/// ```no_run
/// use std::sync::LazyLock;
/// use distlock::LockClient;
///
/// static REDIS: LazyLock<LockClient> =
///     LazyLock::new(|| LockClient::open("redis://127.0.0.1/").expect("a valid address"));
/// ```
#[derive(Clone)]
pub struct LockClient {
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) locals: Arc<Locals>,
}

impl LockClient {
    /// Makes a client with connections of its own, which are opened when they are used.
    ///
    /// No I/O: a program can start before Redis does; [`ping`](LockClient::ping) asks now.
    ///
    /// Takes an address, `redis://[[user]:password@]host[:port][/database]`, or the redis crate's
    /// [`ConnectionInfo`](https://docs.rs/redis/latest/redis/struct.ConnectionInfo.html), which takes a password as it is: in an address `/`, `#`
    /// and `%` in it are written `%2F`, `%23` and `%25`. Uses the defaults of [`ClientOptions`].
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](ErrorKind::InvalidOption) if the address is none.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::LockClient;
    /// # fn main() -> distlock::Result<()> {
    /// let client = LockClient::open("redis://worker:secret@10.0.0.7:6379/0")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(params: impl IntoConnectionInfo) -> Result<LockClient> {
        ClientOptions::new().open(params)
    }

    /// Makes a client on a pool that the application has.
    ///
    /// Prefer [`open`](LockClient::open): a given pool has its manager's limits, not ours.
    ///
    /// - **Time limits** are the manager's: a connection without a read timeout, or r2d2's PING at
    ///   check-out, blocks as long as a silent server does, and with it `try_lock_for`, `unlock`, Drop.
    /// - **No reserve**: when the application uses up the pool, renewals and releases wait for a
    ///   connection, and a lock may be lost or stay until its ttl is over.
    /// - **Batches**: renewals go one by one.
    /// - **Waiting**: a subscription needs a connection of its own, which a pool does not give. Waiters look
    ///   by themselves, every few milliseconds, and are served by luck where all clients do so, not in turn.
    /// - A connection that is out of step cannot be discarded; each answer is checked to be its own.
    ///
    /// Works with every pool whose connections speak Redis: of `redis::Client`, of a cluster client, of
    /// a manager of your own. No I/O.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use distlock::{LockClient, r2d2, redis};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = redis::Client::open("redis://127.0.0.1/")?;
    /// let pool = r2d2::Pool::builder()
    ///     .connection_timeout(Duration::from_secs(1))
    ///     .test_on_check_out(false) // else each call is two
    ///     .build_unchecked(redis);
    /// let client = LockClient::from_pool(pool);
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_pool<M>(pool: r2d2::Pool<M>) -> LockClient
    where
        M: r2d2::ManageConnection,
        M::Connection: ConnectionLike,
    {
        ClientOptions::new().client("pool", Arc::new(Given::new(pool)))
    }

    /// Asks Redis now whether locks will work: the address, the credentials, the rights to every
    /// command that is needed, the version.
    ///
    /// For programs that want to fail at start; nothing else needs it. It leaves nothing in Redis (where
    /// the user may set and not delete: two keys, for a second). Blocks for at most one
    /// [`io_timeout`](ClientOptions::io_timeout).
    ///
    /// # Rights
    ///
    /// What a Redis user needs, if there are ACLs: the keys that are locked and the crate's own beside them,
    /// and these commands. Without those of the second line locks work all the same, and waiters look by
    /// themselves instead of being told.
    ///
    /// ```text
    /// ~orders:* ~distlock:* +evalsha +eval +get +set +del +pexpire +pttl +renamenx +exists +time +select +client|setname
    /// &distlock:* +subscribe +publish +pubsub|numsub +zadd +zrem +zrange +zrank +zscore +zpopmin +hset +hget +hdel +ping
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unreachable`](ErrorKind::Unreachable), [`Exhausted`](ErrorKind::Exhausted),
    /// [`Unavailable`](ErrorKind::Unavailable), [`Denied`](ErrorKind::Denied),
    /// [`InvalidOption`](ErrorKind::InvalidOption) (a database that is not there, a server older than
    /// 6.2, a Sentinel, one node of a cluster), [`Protocol`](ErrorKind::Protocol).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::LockClient;
    /// fn main() -> distlock::Result<()> {
    ///     let client = LockClient::open("redis://127.0.0.1/")?;
    ///     client.ping()?; // a program that is of no use without Redis ends here, and says why
    ///     Ok(())
    /// }
    /// ```
    pub fn ping(&self) -> Result<()> {
        let name = &self.keeper.name;
        if self.keeper.is_inherited() {
            return Err(Error::invalid(format!(
                "redis {name:?} was opened before a fork: the child process must open its own"
            )));
        }
        self.keeper.nodes.ping(self.keeper.io_timeout).map_err(|failure| error::of_deployment(name, failure))
    }

    pub(crate) fn of(name: &str, nodes: Arc<dyn Nodes>, io_timeout: Duration) -> LockClient {
        let keeper = Keeper::new(name, nodes, io_timeout);
        let listener = Listener::of(&keeper);
        LockClient { keeper: Arc::new(keeper), locals: Arc::new(Locals::new(listener)) }
    }
}

// What is behind `dyn` would take the marker away. Nothing is left half changed by a panic: user code
// never runs inside, and mutexes are not poisoned.
impl UnwindSafe for LockClient {}
impl RefUnwindSafe for LockClient {}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient").field("name", &self.keeper.name).finish_non_exhaustive()
    }
}

/// Options of a [`LockClient`].
///
/// ```no_run
/// use std::time::Duration;
/// use distlock::ClientOptions;
///
/// # fn main() -> distlock::Result<()> {
/// let client = ClientOptions::new().name("orders").io_timeout(Duration::from_millis(300)).open("redis://10.0.0.7/")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ClientOptions {
    name: Option<String>,
    io_timeout: Duration,
    max_connections: u32,
    replicas: u32,
}

const MOST_CONNECTIONS: u32 = 1000;

/// The address itself may have a password, and is not shown.
const NO_ADDRESS: &str = "not an address of a Redis server: redis://[[user]:password@]host[:port][/database] is one \
                          (in a password / # % are written %2F %23 %25)";
const NEEDS_TLS: &str =
    "an address with rediss:// needs TLS: switch on distlock's feature tls-rustls or tls-native-tls";

/// The most servers of which a majority is asked.
#[cfg(unix)]
const MOST_NODES: usize = 15;

fn address(params: impl IntoConnectionInfo) -> Result<ConnectionInfo> {
    let info = params.into_connection_info().map_err(|e| {
        // The redis crate finds out by itself that it cannot speak TLS.
        let text = if e.to_string().contains("TLS") { NEEDS_TLS } else { NO_ADDRESS };
        Error::caused(ErrorKind::InvalidOption, text.to_owned(), e)
    })?;
    if !info.addr().is_supported() {
        return Err(Error::invalid(format!("{}: {NEEDS_TLS}", info.addr())));
    }
    Ok(info)
}

impl ClientOptions {
    /// The defaults: an `io_timeout` of 1 s, at most 8 connections, the address as the name.
    ///
    /// ```
    /// use distlock::ClientOptions;
    ///
    /// let client = ClientOptions::new().name("orders").open("redis://127.0.0.1/")?;
    /// # let _ = client;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> ClientOptions {
        ClientOptions { name: None, io_timeout: Duration::from_secs(1), max_connections: 8, replicas: 0 }
    }

    /// What the deployment is called in errors, logs, thread names and `CLIENT LIST`. Defaults to the
    /// address without the credentials.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::ClientOptions;
    /// # fn main() -> distlock::Result<()> {
    /// let client = ClientOptions::new().name("orders").open("redis://10.0.0.7/")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(mut self, name: impl AsRef<str>) -> ClientOptions {
        self.name = Some(name.as_ref().to_owned());
        self
    }

    /// How long one exchange with Redis may take. Defaults to 1 s; from 1 ms to 1 minute.
    ///
    /// All of it: a free connection, connecting, logging in, the answer. It also bounds the release in
    /// Drop. A lock's own calls never take more than half its ttl.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::ClientOptions;
    /// # fn main() -> distlock::Result<()> {
    /// let client = ClientOptions::new().io_timeout(Duration::from_millis(300)).open("redis://10.0.0.7/")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn io_timeout(mut self, d: Duration) -> ClientOptions {
        self.io_timeout = d;
        self
    }

    /// How many pooled connections there may be. Defaults to 8; from 1 to 1000.
    ///
    /// Renewal has one more of its own, and so has the subscription of a client whose locks are waited
    /// for; threads that wait or hold have none. None is opened before it is
    /// used, and those that are not used for a minute are closed.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::ClientOptions;
    /// # fn main() -> distlock::Result<()> {
    /// let client = ClientOptions::new().max_connections(32).open("redis://10.0.0.7/")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_connections(mut self, n: u32) -> ClientOptions {
        self.max_connections = n;
        self
    }

    /// How many replicas must have a lock before it counts as acquired. Defaults to 0, which asks none and
    /// costs nothing.
    ///
    /// Redis acknowledges a write before its replicas have it, so a failover can forget a lock that was
    /// acquired just before. With this, each acquisition waits (Redis's `WAIT`) until so many replicas
    /// have confirmed it, for up to half an [`io_timeout`](ClientOptions::io_timeout): in the same round trip, which takes as much
    /// longer as the replicas do. If they have not, the lock is released and tried again, as long as the
    /// caller waits; then the error is [`Unavailable`](ErrorKind::Unavailable). A renewal waits for no replica.
    ///
    /// It makes the loss of a lock in a failover unlikely, not impossible: the replica that becomes the
    /// master may be another. The [fence](crate::guide::leases) still orders the two holders.
    ///
    /// A waiter that is granted the lock in its turn asks Redis once more, and with it the replicas. The
    /// user needs the right to `WAIT`; a given pool needs one trip more, and must not be one of cluster
    /// connections.
    ///
    /// ```no_run
    /// # use distlock::ClientOptions;
    /// # fn main() -> distlock::Result<()> {
    /// let client = ClientOptions::new().min_replicas(1).open("redis://10.0.0.7/")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn min_replicas(mut self, n: u32) -> ClientOptions {
        self.replicas = n;
        self
    }

    /// Makes a client with connections of its own; see [`LockClient::open`]. No I/O.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](ErrorKind::InvalidOption) if an option is out of its limits or the address is
    /// none.
    ///
    /// # Examples
    ///
    /// ```
    /// # use distlock::{ClientOptions, ErrorKind};
    /// let error = ClientOptions::new().max_connections(0).open("redis://127.0.0.1/").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOption);
    /// ```
    pub fn open(self, params: impl IntoConnectionInfo) -> Result<LockClient> {
        self.check()?;
        let info = address(params)?;
        let name = self.name.clone().unwrap_or_else(|| info.addr().to_string());
        let address = Address::new(info, &format!("distlock:{name}"));
        Ok(self.client(&name, Pool::new(address, self.max_connections)))
    }

    /// Makes a client for the master of a service that Sentinels watch. No I/O.
    ///
    /// `sentinels` are their addresses, with their own credentials if they have any. `master` says how to
    /// log in at the master, and the name of the service stands in the place of its host:
    /// `redis://[[user]:password@]service[/database]`, or `rediss://` if it speaks TLS. The client is
    /// called by the service, if it has no other [name](ClientOptions::name).
    ///
    /// Whenever a connection is opened the Sentinels are asked where the master is, the one that answered
    /// last first, and the server itself whether it is one (if the user may: `+role`). Connections that
    /// break, or whose server turns out to be a replica, are opened again. So threads that wait for a lock
    /// wait through a failover, and a lock that the new master knows is kept and renewed there.
    ///
    /// One that it does not know is [lost](crate::guide::leases): Redis acknowledges before its replicas have
    /// it. [`min_replicas`](ClientOptions::min_replicas) makes that unlikely.
    ///
    /// A Sentinel that does not answer costs a part of the [`io_timeout`](ClientOptions::io_timeout), which
    /// bounds it all.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](ErrorKind::InvalidOption) if an option is out of its limits, an address is none, or
    /// there is no Sentinel.
    ///
    /// # Examples
    ///
    /// ```
    /// # use distlock::ClientOptions;
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
    /// let client = ClientOptions::new().open_sentinel(sentinels, "redis://worker:secret@mymaster/0")?;
    /// # let _ = client;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn open_sentinel<S: IntoConnectionInfo>(
        self,
        sentinels: impl IntoIterator<Item = S>,
        master: impl IntoConnectionInfo,
    ) -> Result<LockClient> {
        self.check()?;
        let info = address(master)?;
        let (ConnectionAddr::Tcp(service, _) | ConnectionAddr::TcpTls { host: service, .. }) = info.addr() else {
            return Err(Error::invalid("a unix socket has no name of a service that Sentinels watch".to_owned()));
        };
        let service = service.clone();
        let name = self.name.clone().unwrap_or_else(|| service.clone());
        let called = format!("distlock:{name}");
        let all = sentinels.into_iter().map(|sentinel| Ok(Address::new(address(sentinel)?, &called)));
        let all = all.collect::<Result<Vec<_>>>()?;
        if all.is_empty() {
            return Err(Error::invalid(format!("no Sentinel is given that could know the master of {service:?}")));
        }
        let address = Address::new(info, &called).watched(Sentinels::new(&service, all));
        Ok(self.client(&name, Pool::new(address, self.max_connections)))
    }

    /// Makes a client for a Redis Cluster. No I/O.
    ///
    /// `nodes` are addresses of some of its nodes, the more the better: the others are asked of them. All
    /// are logged in at with the user and password (and TLS) of the first. A client has up to
    /// [`max_connections`](ClientOptions::max_connections) with each node that serves a key it locks.
    ///
    /// A lock lies with all that belongs to it in one slot of the cluster. Slots that have moved are
    /// followed, and so is the failover of a node, whose locks fare [as in any failover](crate::guide::leases). While a
    /// slot is on its way from one node to another its locks can be neither taken nor renewed: it should
    /// take less than two thirds of their ttl.
    ///
    /// **Waiting** is by looking, every few milliseconds, and by luck: on a cluster no holder can tell a
    /// waiter that it has the lock, and there is no turn.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](ErrorKind::InvalidOption) if an option is out of its limits, an address is none,
    /// there is no node, or a database other than 0 is asked for.
    ///
    /// # Examples
    ///
    /// ```
    /// # use distlock::ClientOptions;
    /// let nodes = ["redis://worker:secret@10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"];
    /// let client = ClientOptions::new().name("orders").open_cluster(nodes)?;
    /// # let _ = client;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn open_cluster<S: IntoConnectionInfo>(self, nodes: impl IntoIterator<Item = S>) -> Result<LockClient> {
        self.check()?;
        let nodes = nodes.into_iter().map(address).collect::<Result<Vec<_>>>()?;
        let seeds = nodes.iter().map(|node| match node.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Ok((host.clone(), *port)),
            other => Err(Error::invalid(format!("{other}: a node of a cluster has a host and a port"))),
        });
        let seeds = seeds.collect::<Result<Vec<_>>>()?;
        let Some(first) = nodes.into_iter().next() else {
            return Err(Error::invalid("no node of the cluster is given".to_owned()));
        };
        if first.redis_settings().db() != 0 {
            return Err(Error::invalid("a cluster has no database but 0".to_owned()));
        }
        let name = self.name.clone().unwrap_or_else(|| first.addr().to_string());
        let login = Address::new(first, &format!("distlock:{name}"));
        Ok(self.client(&name, Arc::new(Cluster::new(seeds, login, self.max_connections))))
    }

    /// Makes a client on a pool that the application has; see [`LockClient::from_pool`]. No I/O.
    ///
    /// Its size is its own: [`max_connections`](ClientOptions::max_connections) is not used.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](ErrorKind::InvalidOption) if an option is out of its limits.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use distlock::{ClientOptions, r2d2, redis};
    /// # fn open(pool: r2d2::Pool<redis::Client>) -> distlock::Result<()> {
    /// let client = ClientOptions::new().name("orders").open_pool(pool)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_pool<M>(self, pool: r2d2::Pool<M>) -> Result<LockClient>
    where
        M: r2d2::ManageConnection,
        M::Connection: ConnectionLike,
    {
        self.check()?;
        let name = self.name.as_deref().unwrap_or("pool");
        Ok(self.client(name, Arc::new(Given::new(pool))))
    }

    fn client(&self, name: &str, link: Arc<dyn Link>) -> LockClient {
        LockClient::of(name, Arc::new(Single::new(link).copied_to(self.replicas)), self.io_timeout)
    }

    /// Makes a client over several independent servers, of which a majority must agree: Redlock, with
    /// fences. No I/O.
    ///
    /// For locks that must outlast the loss of a server without a replica that may lack the last writes.
    /// Three addresses stand one failure, five stand two. The servers share nothing: no replication, no
    /// cluster. All API is the same, but:
    ///
    /// - **Waiting** is by [`Backoff`](crate::Backoff) alone, whoever is luckiest: there is no queue. Each
    ///   attempt asks all servers side by side, and ends when a majority has answered.
    /// - **A lease** is good for the ttl less the time that the attempt took, as everywhere.
    /// - **A server that loses its memory** gets the key again while a majority has it. No two hold the lock
    ///   while no server forgets a key before its ttl is over. So a server that may have lost its last
    ///   writes must stay away for a ttl after a restart, or write with `appendfsync always`.
    /// - **Fences** grow while no server forgets, and beyond that as far as no server's clock was ahead of
    ///   the others' by more than the time that the loss took.
    /// - **Guarded writes** ([`query`](crate::DistLockGuard::query), `exec`, `invoke`) are refused: use a
    ///   [`FenceGate`](crate::FenceGate) on a client of the one server that has the data.
    ///
    /// [`max_connections`](ClientOptions::max_connections) is for each server. Unix only; no TLS yet.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](ErrorKind::InvalidOption) if an option is out of its limits, an address is none, is
    /// there twice, or asks for TLS, or if there is not an odd number of them from 3 to 15.
    ///
    /// # Examples
    ///
    /// ```
    /// # use distlock::ClientOptions;
    /// let nodes = ["redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3/"];
    /// let client = ClientOptions::new().name("locks").open_nodes(nodes)?;
    /// # let _ = client;
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[cfg(unix)]
    pub fn open_nodes<T: IntoConnectionInfo>(self, addresses: impl IntoIterator<Item = T>) -> Result<LockClient> {
        self.check()?;
        if self.replicas > 0 {
            return Err(Error::invalid("min_replicas is for one server, and several nodes need none".to_owned()));
        }
        let addresses: Vec<_> = addresses.into_iter().map(address).collect::<Result<_>>()?;
        let count = addresses.len();
        if count % 2 == 0 || !(3..=MOST_NODES).contains(&count) {
            return Err(Error::invalid(format!("{count} nodes: an odd number from 3 to {MOST_NODES} is possible")));
        }
        let mut nodes: Vec<(String, Arc<Pool>)> = Vec::new();
        for info in addresses {
            let node = info.addr().to_string();
            if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
                return Err(Error::invalid(format!("{node}: several nodes are possible without TLS only")));
            }
            if nodes.iter().any(|(other, _)| *other == node) {
                return Err(Error::invalid(format!("{node} is there twice: each node has one vote")));
            }
            let pool = Pool::new(Address::new(info, &format!("distlock:{node}")), self.max_connections);
            nodes.push((node, pool));
        }
        let names: Vec<&str> = nodes.iter().map(|(node, _)| node.as_str()).collect();
        let name = self.name.clone().unwrap_or_else(|| names.join(", "));
        Ok(LockClient::of(&name, Arc::new(Quorum::new(nodes)), self.io_timeout))
    }

    fn check(&self) -> Result<()> {
        between("io_timeout", self.io_timeout, Duration::from_millis(1), Duration::from_secs(60))?;
        if !(1..=MOST_CONNECTIONS).contains(&self.max_connections) {
            let n = self.max_connections;
            return Err(Error::invalid(format!("max_connections of {n}: 1 to {MOST_CONNECTIONS} are possible")));
        }
        Ok(())
    }
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions::new()
    }
}
