//! From an address to a connection that is ready, under one deadline.
//!
//! AUTH, SELECT, CLIENT SETNAME and TIME are written at once and read under what is left of one deadline.
//! (The redis crate bounds each reply of its own handshake, not the whole.)

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use redis::{Connection, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, Value};

use super::aside::Aside;
use super::failure::{Class, Failure};
use super::script::pack;
use super::sentinel::{Sentinels, check_role};
use super::sorting;
use super::wire::Wire;
use crate::clock::Moment;

/// Where a server is and who we are there.
#[derive(Clone)]
pub(crate) struct Address {
    info: ConnectionInfo,
    aside: Aside,
    login: Login,
    /// Who knows where it is; the host is then of no use.
    sentinels: Option<Arc<Sentinels>>,
}

#[derive(Clone, Default)]
struct Login {
    username: Option<String>,
    password: Option<String>,
    db: i64,
    client_name: String,
}

/// A connection that is ready, with the server's clock in µs as of now.
pub(crate) struct Ready {
    pub(crate) wire: Wire,
    pub(crate) clock: u64,
}

impl Address {
    pub(crate) fn new(info: ConnectionInfo, client_name: &str) -> Address {
        let redis = info.redis_settings();
        let login = Login {
            username: redis.username().map(str::to_owned),
            password: redis.password().map(str::to_owned),
            db: redis.db(),
            client_name: client_name.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).collect(),
        };
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        Address {
            info: info.set_redis_settings(bare).set_tcp_settings(tcp),
            aside: Aside::default(),
            login,
            sentinels: None,
        }
    }

    /// The same login at another host.
    pub(crate) fn at(&self, (new_host, new_port): &(String, u16)) -> Address {
        let mut place = self.place().clone();
        match &mut place {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                new_host.clone_into(host);
                *port = *new_port;
            }
            _ => {}
        }
        // A host that hangs costs its own thread, not one that others wait for.
        Address { info: self.info.clone().set_addr(place), aside: Aside::default(), ..self.clone() }
    }

    /// Wherever these say that the master is.
    pub(crate) fn watched(self, sentinels: Sentinels) -> Address {
        Address { sentinels: Some(Arc::new(sentinels)), ..self }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.sentinels.is_some()
    }

    /// Who it is.
    pub(super) fn place(&self) -> &ConnectionAddr {
        self.info.addr()
    }

    /// The address as of now.
    fn found(&self, until: Moment) -> Result<Address, Failure> {
        let Some(sentinels) = &self.sentinels else { return Ok(self.clone()) };
        Ok(self.at(&sentinels.master(until)?))
    }

    /// Connects and logs in.
    pub(crate) fn connect(&self, until: Moment) -> Result<Ready, Failure> {
        let limit = Moment::now().until(until);
        if self.is_watched() {
            let found = self.found(until)?;
            let wire = found.open(until).map_err(|e| found.failed(e, limit))?;
            return found.log_in(wire, until, limit);
        }
        let wire = self.open(until).map_err(|e| self.failed(e, limit))?;
        self.log_in(wire, until, limit)
    }

    /// The same for a connection of the redis crate, which a subscription needs.
    pub(crate) fn connect_redis(&self, until: Moment) -> Result<Connection, Failure> {
        let limit = Moment::now().until(until);
        let found = self.found(until)?;
        let info = found.info.clone();
        let opened = self.aside.run(until, move || Ok(connect_redis(info, until)));
        let connection = opened.map_err(redis::RedisError::from).flatten().map_err(|e| found.failed(e, limit))?;
        match found.log_in(Wire::Redis(connection), until, limit)?.wire {
            Wire::Redis(connection) => Ok(connection),
            Wire::Own(_) => Err(Failure::with_text(Class::Protocol, "the connection is another")),
        }
    }

    /// What is said to log in, and what answers it.
    #[cfg(unix)]
    pub(super) fn login(&self) -> (Vec<u8>, Vec<Step>) {
        self.login.request()
    }

    pub(super) fn failed(&self, e: redis::RedisError, limit: Duration) -> Failure {
        Failure::connecting(self.info.addr(), e, limit)
    }

    fn log_in(&self, mut wire: Wire, until: Moment, limit: Duration) -> Result<Ready, Failure> {
        let (request, steps) = self.login.request();
        let sent = wire.send(&request, Moment::now(), until);
        sent.map_err(|e| self.failed(e, limit).before_a_word())?;
        let (mut clock, mut heard) = (None, false);
        for step in steps {
            let reply = wire.receive(until).map_err(|e| self.failed(e, limit));
            let reply = reply.map_err(|failure| if heard { failure } else { failure.before_a_word() })?;
            heard = true;
            clock = match step.check(reply) {
                Ok(found) => found.or(clock),
                Err(_) if matches!(step, Step::Time) && is_sentinel(&mut wire, until) => return Err(sentinel()),
                Err(failure) => return Err(failure),
            };
        }
        let clock = clock.ok_or_else(|| Failure::with_text(Class::Protocol, "TIME gave no time"))?;
        if self.is_watched() {
            check_role(&mut wire, until, |e| self.failed(e, limit))?;
        }
        Ok(Ready { wire, clock })
    }

    pub(super) fn auth(&self) -> Vec<u8> {
        self.login.auth()
    }

    /// The socket. A host with several addresses shares the time among those that are left.
    pub(super) fn open(&self, until: Moment) -> redis::RedisResult<Wire> {
        let (host, port) = match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => (host, *port),
            // A unix socket has no time limit.
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let path = path.clone();
                return Ok(self.aside.run(until, move || Wire::unix(&path))?);
            }
            // With TLS the redis crate looks the name up.
            _ => {
                let info = self.info.clone();
                return self.aside.run(until, move || Ok(connect_redis(info, until).map(Wire::Redis)))?;
            }
        };
        let found = self.addresses(host, port, until)?;
        let mut outcome = Err((redis::ErrorKind::InvalidClientConfig, "the host has no address").into());
        for (i, addr) in found.iter().enumerate() {
            let share = u32::try_from(found.len() - i).unwrap_or(u32::MAX);
            let time = (Moment::now().until(until) / share).max(Duration::from_millis(1));
            outcome = Wire::tcp(addr, time).map_err(redis::RedisError::from);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

impl Address {
    /// The addresses of a host.
    pub(super) fn addresses(&self, host: &str, port: u16, until: Moment) -> std::io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let host = host.to_owned();
        self.aside.run(until, move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
    }
}

fn connect_redis(info: ConnectionInfo, until: Moment) -> redis::RedisResult<Connection> {
    let time = Moment::now().until(until).max(Duration::from_millis(1));
    redis::Client::open(info)?.get_connection_with_timeout(time)
}

/// Asked where TIME is refused, within the time that the refusal had: a Sentinel knows few commands.
fn is_sentinel(wire: &mut Wire, until: Moment) -> bool {
    let role = wire.send(&pack::command(&["ROLE"]), Moment::now(), until).and_then(|()| wire.receive(until));
    matches!(role, Ok(Value::Array(role)) if matches!(role.first(), Some(Value::BulkString(word)) if word == b"sentinel"))
}

fn sentinel() -> Failure {
    Failure::with_text(Class::Setup, "its role is sentinel").advising(sorting::SENTINEL)
}

/// What a reply of the handshake answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Auth,
    Select,
    SetName,
    Time,
}

impl Login {
    /// Empty where there is no password.
    fn auth(&self) -> Vec<u8> {
        let Some(password) = &self.password else { return Vec::new() };
        let words = ["AUTH"].into_iter().chain(self.username.as_deref()).chain([password.as_str()]);
        pack::command(&words.collect::<Vec<_>>())
    }

    fn request(&self) -> (Vec<u8>, Vec<Step>) {
        let (mut out, mut steps) = (self.auth(), Vec::new());
        if !out.is_empty() {
            steps.push(Step::Auth);
        }
        if self.db != 0 {
            out.extend(pack::command(&["SELECT", &self.db.to_string()]));
            steps.push(Step::Select);
        }
        out.extend(pack::command(&["CLIENT", "SETNAME", &self.client_name]));
        out.extend(pack::command(&["TIME"]));
        steps.extend([Step::SetName, Step::Time]);
        (out, steps)
    }
}

impl Step {
    /// The server's clock where this is TIME.
    pub(super) fn check(self, reply: Value) -> Result<Option<u64>, Failure> {
        let failure = match reply {
            Value::ServerError(e) => Failure::from_server(e),
            reply => return Ok(if matches!(self, Step::Time) { clock_of(&reply) } else { None }),
        };
        match self {
            // A name is for the operator's eyes; a server or a proxy may refuse it.
            Step::SetName if !is_goodbye(&failure) => Ok(None),
            // Whatever else is said of credentials, they are not accepted.
            Step::Auth if failure.class == Class::Protocol => Err(Failure { class: Class::Denied, ..failure }),
            Step::Select if failure.class == Class::Protocol => Err(Failure { class: Class::Setup, ..failure }),
            _ => Err(failure),
        }
    }
}

/// What a server says of its own accord before it closes: too many clients, protected mode.
fn is_goodbye(failure: &Failure) -> bool {
    failure.class == Class::Unavailable || failure.to_string().starts_with("DENIED")
}

/// The answer of TIME in µs.
pub(crate) fn clock_of(reply: &Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(reply).ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the credentials.
        match &self.sentinels {
            Some(sentinels) => write!(f, "the master of {:?}", sentinels.service()),
            None => write!(f, "{}", self.info.addr()),
        }
    }
}
