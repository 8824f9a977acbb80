//! A proxy between a client and its server that loses, holds, delays and cuts what it is told to.
//!
//! It knows where a request and a reply begin and end, and which reply answers which request, so that a
//! rule can say "the reply to the next `try`". What no rule matches passes. Nothing of it outlives it:
//! its threads end before its drop does.

mod pump;
#[cfg(test)]
mod tests;

use std::{
    io::Write,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::lock;

pub(crate) use pump::read_message;

/// What becomes of a request or a reply that a rule matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It never arrives, and the connection stays as it is.
    Lose,
    /// It arrives when [`Proxy::release`] or [`Proxy::heal`] is called.
    Hold,
    /// It arrives so much later, and what follows it on its connection after it.
    Delay(Duration),
    /// It does not arrive, and the connection is closed.
    Cut,
    /// Its first half arrives, and then nothing.
    Halve,
    /// These bytes arrive before it.
    Precede(&'static [u8]),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Request,
    Reply,
}

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// Where a message goes.
type Receiver = Arc<Mutex<TcpStream>>;
type Matcher = Box<dyn Fn(&[u8]) -> bool + Send>;

struct Rule {
    way: Way,
    matches: Matcher,
    fate: Fate,
    times: usize,
}

/// Both ends of a connection, and the threads between them.
struct Joint {
    ends: [TcpStream; 2],
    pumps: [JoinHandle<()>; 2],
}

#[derive(Default)]
struct Shared {
    /// Where it is taken with `held`, it is taken first.
    rules: Mutex<Vec<Rule>>,
    /// Requests in the order of their arrival here, whatever became of them.
    seen: Mutex<Vec<Vec<u8>>>,
    /// Those that the server has executed, in the order of its answers, whatever became of these.
    answered: Mutex<Vec<Vec<u8>>>,
    held: Mutex<Vec<(Receiver, Vec<u8>)>>,
    joints: Mutex<Vec<Joint>>,
    connections: AtomicUsize,
    refusing: AtomicBool,
    /// The proxy is being dropped; with its condition, which ends every delay.
    closed: (Mutex<bool>, Condvar),
}

impl Proxy {
    pub(crate) fn to(server: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        let acceptor = thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.is_closed() {
                    return;
                }
                if !accepting.refusing.load(SeqCst) {
                    accepting.connections.fetch_add(1, SeqCst);
                    pump::join(&accepting, client, server);
                }
            }
        });
        Proxy { port, shared, acceptor: Some(acceptor) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The next `times` requests or replies of this kind meet this fate. A reply is matched by the
    /// request that it answers.
    pub(crate) fn rule(&self, way: Way, fate: Fate, times: usize, matches: impl Fn(&[u8]) -> bool + Send + 'static) {
        lock(&self.shared.rules).push(Rule { way, matches: Box::new(matches), fate, times });
    }

    /// Every request, or every reply, of new connections too, is held: a partition of one direction,
    /// until [`heal`](Proxy::heal).
    pub(crate) fn block(&self, way: Way) {
        self.rule(way, Fate::Hold, usize::MAX, |_| true);
    }

    /// Every request, or every reply, arrives so much later, until [`heal`](Proxy::heal).
    pub(crate) fn delay(&self, way: Way, by: Duration) {
        self.rule(way, Fate::Delay(by), usize::MAX, |_| true);
    }

    /// No rule is left, and what was held arrives, before all that comes after it.
    pub(crate) fn heal(&self) {
        let mut rules = lock(&self.shared.rules);
        rules.clear();
        self.release();
    }

    /// No rule is left: everything passes, but for what is held.
    pub(crate) fn pass(&self) {
        lock(&self.shared.rules).clear();
    }

    /// What was held arrives now; how much was it?
    pub(crate) fn release(&self) -> usize {
        let held: Vec<_> = lock(&self.shared.held).drain(..).collect();
        for (stream, bytes) in &held {
            let _ = lock(stream).write_all(bytes);
        }
        held.len()
    }

    pub(crate) fn held(&self) -> usize {
        lock(&self.shared.held).len()
    }

    /// Connections that were opened so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// Requests that came so far.
    pub(crate) fn requests(&self) -> usize {
        lock(&self.shared.seen).len()
    }

    /// Requests of one kind that came so far.
    pub(crate) fn count(&self, matches: impl Fn(&[u8]) -> bool) -> usize {
        lock(&self.shared.seen).iter().filter(|request| matches(request)).count()
    }

    /// Requests of one kind that the server has executed so far.
    pub(crate) fn answered(&self, matches: impl Fn(&[u8]) -> bool) -> usize {
        lock(&self.shared.answered).iter().filter(|request| matches(request)).count()
    }

    /// Closes every connection, and new ones as soon as they are opened, until `refuse(false)`.
    pub(crate) fn refuse(&self, refusing: bool) {
        self.shared.refusing.store(refusing, SeqCst);
        if refusing {
            lock(&self.shared.joints).iter().for_each(Joint::cut);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        *lock(&self.shared.closed.0) = true;
        self.shared.closed.1.notify_all();
        // Wakes the acceptor, which opens no connection from here on.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let joints: Vec<Joint> = lock(&self.shared.joints).drain(..).collect();
        joints.iter().for_each(Joint::cut);
        joints.into_iter().flat_map(|joint| joint.pumps).for_each(|pump| drop(pump.join()));
    }
}

impl Joint {
    fn cut(&self) {
        self.ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }

    fn is_over(&self) -> bool {
        self.pumps.iter().all(JoinHandle::is_finished)
    }
}

/// The n-th of those that match, counted from 1.
pub(crate) fn nth(n: usize, matches: impl Fn(&[u8]) -> bool + Send) -> impl Fn(&[u8]) -> bool + Send {
    let count = AtomicUsize::new(0);
    move |request| matches(request) && count.fetch_add(1, SeqCst) + 1 == n
}

/// Is it a call of this script, by its digest or its source?
pub(crate) fn calls(source: &'static str) -> impl Fn(&[u8]) -> bool + Send + Clone {
    let source = whole(source);
    let hash = redis::Script::new(&source).get_hash().to_owned();
    move |request| contains(request, hash.as_bytes()) || contains(request, source.as_bytes())
}

/// A script with the parts that several share, which it names where they belong.
pub(crate) fn whole(source: &str) -> String {
    let part = |source: &str, name: &str, part: &str| source.replace(&format!("--< {name}"), part.trim_end());
    let source = part(source, "mint.lua", include_str!("../../../src/server/script/mint.lua"));
    part(&source, "pass_on.lua", include_str!("../../../src/server/script/pass_on.lua"))
}

pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

pub(crate) const TRY: &str = include_str!("../../../src/server/script/try.lua");
pub(crate) const WAIT: &str = include_str!("../../../src/server/script/wait.lua");
pub(crate) const RELEASE: &str = include_str!("../../../src/server/script/release.lua");
pub(crate) const RENEW: &str = include_str!("../../../src/server/script/renew.lua");
pub(crate) const LEAVE: &str = include_str!("../../../src/server/script/leave.lua");
pub(crate) const STAMP: &str = include_str!("../../../src/server/script/stamp.lua");
pub(crate) const UNSTAMP: &str = include_str!("../../../src/server/script/unstamp.lua");

impl Shared {
    fn is_closed(&self) -> bool {
        *lock(&self.closed.0)
    }

    /// Sleeps, but not beyond the proxy's end.
    fn pause(&self, d: Duration) {
        drop(self.closed.1.wait_timeout_while(lock(&self.closed.0), d, |closed| !*closed));
    }
}
