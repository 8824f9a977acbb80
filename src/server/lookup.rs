//! Host names, looked up within a deadline.
//!
//! The system's resolver has time limits of its own, far beyond ours, and cannot be interrupted. So a
//! name is looked up on a thread, one at a time for an address, and whoever needs the answer waits no
//! longer than it may. An address in digits needs none of this.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use parking_lot::{Condvar, Mutex};

use crate::clock::Moment;

#[derive(Clone, Default)]
pub(crate) struct Lookup(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Guards the lookup that is under way and the last answer.
    state: Mutex<State>,
    /// With `state`: signalled by the thread when it has an answer.
    answered: Condvar,
}

#[derive(Default)]
struct State {
    running: bool,
    /// Lookups that have ended.
    count: u64,
    answer: Option<Result<Vec<SocketAddr>, Arc<io::Error>>>,
}

impl Lookup {
    /// The addresses of a host.
    pub(crate) fn addresses(&self, host: &str, port: u16, until: Moment) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let mut state = self.0.state.lock();
        let before = state.count;
        if !state.running {
            self.start(host.to_owned(), port)?;
            state.running = true;
        }
        while state.count == before {
            let left = Moment::now().until(until);
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.0.answered.wait_for(&mut state, left);
        }
        match &state.answer {
            Some(Ok(found)) => Ok(found.clone()),
            Some(Err(e)) => Err(io::Error::new(e.kind(), e.to_string())),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn start(&self, host: String, port: u16) -> io::Result<()> {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("distlock-lookup".to_owned());
        thread.spawn(move || {
            let answer = (host.as_str(), port).to_socket_addrs().map(Iterator::collect).map_err(Arc::new);
            let mut state = shared.state.lock();
            state.answer = Some(answer);
            state.running = false;
            state.count += 1;
            shared.answered.notify_all();
        })?;
        Ok(())
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_in_digits_needs_no_lookup() {
        let lookup = Lookup::default();
        for ip in ["127.0.0.1", "::1"] {
            let found = lookup.addresses(ip, 6379, Moment::PAST).unwrap();
            assert_eq!(found, [SocketAddr::new(ip.parse().unwrap(), 6379)]);
        }
    }

    #[test]
    fn a_name_is_found_again_and_again() {
        let lookup = Lookup::default();
        for _ in 0..3 {
            let until = Moment::now().after(Duration::from_secs(20));
            let found = lookup.addresses("localhost", 6379, until).unwrap();
            assert!(found.iter().any(|address| address.ip().is_loopback()), "{found:?}");
        }
    }

    #[test]
    fn a_lookup_that_takes_too_long_is_not_waited_for() {
        let lookup = Lookup::default();
        let error = lookup.addresses("localhost", 6379, Moment::PAST).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
