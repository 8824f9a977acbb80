//! A proxy between a client and its server that loses, holds, delays and cuts what it is told to.
//!
//! It knows where a request and a reply begin and end, and which reply answers which request, so that a
//! rule can say "the reply to the next `try`". What no rule matches passes. Nothing of it outlives it:
//! its threads end before its drop does.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

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
                    join(&accepting, client, server);
                }
            }
        });
        Proxy { port, shared, acceptor: Some(acceptor) }
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
    let hash = redis::Script::new(source).get_hash().to_owned();
    move |request| contains(request, hash.as_bytes()) || contains(request, source.as_bytes())
}

pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

pub(crate) const TRY: &str = include_str!("../../../src/server/script/try.lua");
pub(crate) const RELEASE: &str = include_str!("../../../src/server/script/release.lua");
pub(crate) const RENEW: &str = include_str!("../../../src/server/script/renew.lua");
pub(crate) const LEAVE: &str = include_str!("../../../src/server/script/leave.lua");

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Two threads a connection: requests one way, replies the other.
fn join(shared: &Arc<Shared>, client: TcpStream, server: u16) {
    let Ok(upstream) = TcpStream::connect(("127.0.0.1", server)) else { return };
    for stream in [&client, &upstream] {
        stream.set_nodelay(true).expect("a socket option");
    }
    let waiting: Arc<Mutex<VecDeque<Vec<u8>>>> = Arc::default();
    let pumps = [(Way::Request, &client, &upstream), (Way::Reply, &upstream, &client)].map(|(way, from, to)| {
        let (shared, waiting, from, to) = (Arc::clone(shared), Arc::clone(&waiting), clone(from), clone(to));
        thread::spawn(move || {
            let ends = [clone(&from), clone(&to)];
            pump(&shared, way, from, to, &waiting);
            ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        })
    });
    let mut joints = lock(&shared.joints);
    joints.retain(|joint| !joint.is_over());
    joints.push(Joint { ends: [client, upstream], pumps });
    // A refusal that came in between found nothing to cut.
    if shared.refusing.load(SeqCst) {
        joints.iter().for_each(Joint::cut);
    }
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a second handle")
}

fn pump(shared: &Shared, way: Way, from: TcpStream, to: TcpStream, waiting: &Mutex<VecDeque<Vec<u8>>>) {
    let mut from = BufReader::new(from);
    let to = Arc::new(Mutex::new(to));
    let mut mute = false;
    while let Some(message) = read_message(&mut from) {
        if pass_on(shared, way, message, &to, waiting, &mut mute).is_none() {
            return;
        }
    }
    // A held message must outlive its connection's other way: its sender gave up, and it still arrives.
    while lock(&shared.held).iter().any(|(stream, _)| Arc::ptr_eq(stream, &to)) && !shared.is_closed() {
        thread::sleep(Duration::from_millis(2));
    }
    if way == Way::Request {
        // What was just released is executed before the connection goes.
        shared.pause(Duration::from_millis(50));
    }
}

/// Lets a message meet its fate; `None` if that is the end of its connection.
fn pass_on(
    shared: &Shared,
    way: Way,
    message: Vec<u8>,
    to: &Receiver,
    waiting: &Mutex<VecDeque<Vec<u8>>>,
    mute: &mut bool,
) -> Option<()> {
    let request = match way {
        Way::Request => {
            lock(&shared.seen).push(message.clone());
            message.clone()
        }
        Way::Reply => lock(waiting).pop_front().unwrap_or_default(),
    };
    let mut rules = lock(&shared.rules);
    let fate = fate(&mut rules, way, &request);
    // The server will answer whatever reaches it whole.
    let reaches = !matches!(fate, Some(Fate::Lose | Fate::Cut | Fate::Halve));
    if way == Way::Request && reaches && !*mute {
        lock(waiting).push_back(request);
    }
    if *mute {
        return Some(());
    }
    if fate == Some(Fate::Hold) {
        // Still under the rules: `heal` finds it, or its rule is gone.
        lock(&shared.held).push((Arc::clone(to), message));
        return Some(());
    }
    drop(rules);
    match fate {
        Some(Fate::Lose | Fate::Hold) => Some(()),
        Some(Fate::Cut) => None,
        Some(Fate::Halve) => {
            *mute = true;
            lock(to).write_all(&message[..message.len() / 2]).ok()
        }
        Some(Fate::Precede(bytes)) => lock(to).write_all(&[bytes, &message].concat()).ok(),
        Some(Fate::Delay(by)) => {
            shared.pause(by);
            lock(to).write_all(&message).ok()
        }
        None => lock(to).write_all(&message).ok(),
    }
}

/// What the first rule that fits says, once less from then on.
fn fate(rules: &mut [Rule], way: Way, request: &[u8]) -> Option<Fate> {
    let rule = rules.iter_mut().find(|rule| rule.way == way && rule.times > 0 && (rule.matches)(request))?;
    rule.times -= 1;
    Some(rule.fate.clone())
}

impl Shared {
    fn is_closed(&self) -> bool {
        *lock(&self.closed.0)
    }

    /// Sleeps, but not beyond the proxy's end.
    fn pause(&self, d: Duration) {
        drop(self.closed.1.wait_timeout_while(lock(&self.closed.0), d, |closed| !*closed));
    }
}

/// One whole RESP message as it stands on the wire.
fn read_message(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut open = 1usize;
    while open > 0 {
        open -= 1;
        let start = bytes.len();
        if from.read_until(b'\n', &mut bytes).ok()? == 0 {
            return None;
        }
        let line = bytes[start..].to_vec();
        let count = || str::from_utf8(&line[1..]).ok()?.trim().parse::<i64>().ok();
        match line[0] {
            b'*' => open += usize::try_from(count()?).unwrap_or(0),
            b'$' => {
                let Ok(length) = usize::try_from(count()?) else { continue };
                let end = bytes.len();
                bytes.resize(end + length + 2, 0);
                from.read_exact(&mut bytes[end..]).ok()?;
            }
            _ => {}
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{SLACK, Server};

    fn ping(proxy: &Proxy, timeout: Duration) -> redis::RedisResult<redis::Connection> {
        let mut connection = redis::Client::open(proxy.url())?.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        redis::cmd("PING").exec(&mut connection)?;
        Ok(connection)
    }

    #[test]
    fn it_delays_every_reply_by_a_time_until_it_is_healed() {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let mut connection = ping(&proxy, Duration::from_secs(9)).unwrap();
        let mut took = || {
            let start = std::time::Instant::now();
            redis::cmd("PING").exec(&mut connection).unwrap();
            start.elapsed()
        };
        let by = 2 * SLACK;
        proxy.delay(Way::Reply, by);
        assert!(took() >= by && took() >= by);
        proxy.heal();
        assert!(took() < SLACK);
    }

    #[test]
    fn a_blocked_direction_holds_what_comes_and_the_other_one_passes() {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let mut connection = ping(&proxy, Duration::from_millis(50)).unwrap();
        proxy.block(Way::Reply);
        assert!(redis::cmd("SET").arg("k").arg(1).exec(&mut connection).is_err());
        assert_eq!(server.ask::<i64>(&["GET", "k"]), 1, "requests pass");
        assert!(ping(&proxy, Duration::from_millis(50)).is_err(), "new connections are blocked, too");
        proxy.heal();
        assert_eq!(proxy.held(), 0);
        ping(&proxy, Duration::from_secs(9)).unwrap();
    }

    #[test]
    fn the_nth_reply_is_lost_and_no_other() {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let mut connection = ping(&proxy, Duration::from_millis(50)).unwrap();
        proxy.rule(Way::Reply, Fate::Lose, 1, nth(3, |request| contains(request, b"INCR")));
        let mut lost = |_| redis::cmd("INCR").arg("n").query::<i64>(&mut connection).is_err();
        assert_eq!([1, 2, 3].map(&mut lost), [false, false, true]);
        assert_eq!(server.ask::<i64>(&["GET", "n"]), 3);
    }

    #[test]
    fn no_thread_of_it_is_left_after_its_drop() {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let shared = Arc::downgrade(&proxy.shared);
        let mut connections = [(); 4].map(|()| ping(&proxy, Duration::from_secs(9)).unwrap());
        proxy.delay(Way::Request, Duration::from_secs(3600));
        connections[0].send_packed_command(&redis::cmd("PING").get_packed_command()).unwrap();
        proxy.block(Way::Reply);
        drop(proxy);
        // Every thread has a share of it.
        assert_eq!(shared.strong_count(), 0);
    }
}
