//! A connection that is being opened while others are, too: nothing here waits. Its owner waits for all of
//! them at once, and goes on with whichever is ready.

use std::{
    collections::VecDeque,
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
};

use redis::{ConnectionAddr, RedisError};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::failure::{Class, Failure};
use super::handshake::{Address, Ready, Step};
use super::script::pack;
use super::wire::Wire;
use crate::clock::Moment;

pub(crate) struct Opening {
    since: Moment,
    until: Moment,
    stage: Stage,
}

enum Stage {
    /// The socket is connecting; the addresses that are left if it fails.
    Connecting(TcpStream, VecDeque<SocketAddr>),
    /// Answers of the handshake are awaited.
    LoggingIn { wire: Wire, steps: VecDeque<Step>, clock: Option<u64>, heard: bool },
}

impl Opening {
    /// Begins to connect. Blocks only for a name that must be looked up, until then at most.
    pub(crate) fn begin(to: &Address, until: Moment) -> Result<Opening, Failure> {
        let since = Moment::now();
        let limit = since.until(until);
        let stage = match to.place() {
            ConnectionAddr::Tcp(host, port) => {
                let found = to.addresses(host, *port, until).map_err(|e| to.failed(e.into(), limit))?;
                connect(found.into()).map_err(|e| to.failed(e, limit))?
            }
            // A unix socket is there at once, or its listener is full.
            _ => log_in(to, to.open(until).map_err(|e| to.failed(e, limit))?, until)?,
        };
        Ok(Opening { since, until, stage })
    }

    /// Asks a connection that stands for the time.
    pub(crate) fn ask_time(to: &Address, mut wire: Wire, until: Moment) -> Result<Opening, Failure> {
        let since = Moment::now();
        let sent = wire.send(&pack::command(&["TIME"]), since, until);
        sent.map_err(|e| to.failed(e, since.until(until)))?;
        let stage = Stage::LoggingIn { wire, steps: [Step::Time].into(), clock: None, heard: true };
        Ok(Opening { since, until, stage })
    }

    /// It takes longer than it may.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        now >= self.until
    }

    pub(crate) fn wants_to_write(&self) -> bool {
        matches!(self.stage, Stage::Connecting(..))
    }

    /// What to wait for.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Connecting(stream, _) => Some(stream.as_fd()),
            Stage::LoggingIn { wire, .. } => wire.fd(),
        }
    }

    /// Something has come, or the socket is connected: goes on. `Ok(Err(self))`: there is more to wait for.
    pub(crate) fn go_on(self, to: &Address) -> Result<Result<Ready, Opening>, Failure> {
        let Opening { since, until, stage } = self;
        let limit = since.until(until);
        match stage {
            Stage::Connecting(stream, left) => {
                let connected = stream.take_error().and_then(|error| error.map_or(Ok(()), Err));
                let stage = match connected.and_then(|()| Wire::connected(stream)) {
                    Ok(wire) => log_in(to, wire, until)?,
                    Err(e) if left.is_empty() => return Err(to.failed(e.into(), limit)),
                    Err(_) => connect(left).map_err(|e| to.failed(e, limit))?,
                };
                Ok(Err(Opening { since, until, stage }))
            }
            Stage::LoggingIn { mut wire, mut steps, mut clock, mut heard } => {
                let failed = |e: RedisError, heard: bool| {
                    let failure = to.failed(e, limit);
                    if heard { failure } else { failure.before_a_word() }
                };
                wire.take_in().map_err(|e| failed(e.into(), heard))?;
                while let Some(step) = steps.front().copied() {
                    let Some(reply) = wire.next_whole().map_err(|e| failed(e, heard))? else {
                        let stage = Stage::LoggingIn { wire, steps, clock, heard };
                        return Ok(Err(Opening { since, until, stage }));
                    };
                    steps.pop_front();
                    heard = true;
                    clock = step.check(reply)?.or(clock);
                }
                let clock = clock.ok_or_else(|| Failure::with_text(Class::Protocol, "TIME gave no time"))?;
                Ok(Ok(Ready { wire, clock }))
            }
        }
    }
}

fn log_in(to: &Address, mut wire: Wire, until: Moment) -> Result<Stage, Failure> {
    let (request, steps) = to.login();
    let now = Moment::now();
    wire.send(&request, now, until).map_err(|e| to.failed(e, now.until(until)).before_a_word())?;
    Ok(Stage::LoggingIn { wire, steps: steps.into(), clock: None, heard: false })
}

/// Begins to connect to the first address that does not refuse at once.
fn connect(mut addresses: VecDeque<SocketAddr>) -> Result<Stage, RedisError> {
    let mut outcome = Err((redis::ErrorKind::InvalidClientConfig, "the host has no address").into());
    while let Some(address) = addresses.pop_front() {
        match begin_tcp(&address) {
            Ok(stream) => return Ok(Stage::Connecting(stream, addresses)),
            Err(e) => outcome = Err(e.into()),
        }
    }
    outcome
}

fn begin_tcp(address: &SocketAddr) -> std::io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(e) => Err(e.into()),
    }
}
