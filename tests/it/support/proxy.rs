//! A proxy between a client and its server that loses, holds and cuts what it is told to.
//!
//! It knows where a request and a reply begin and end, and which reply answers which request, so that a
//! rule can say "the reply to the next `try`". What no rule matches passes.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// What becomes of a request or a reply that a rule matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It never arrives, and the connection stays as it is.
    Lose,
    /// It arrives when [`Proxy::release`] is called.
    Hold,
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

#[derive(Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    /// Requests in the order of their arrival here, whatever became of them.
    seen: Mutex<Vec<Vec<u8>>>,
    held: Mutex<Vec<(Receiver, Vec<u8>)>>,
    streams: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    refusing: AtomicBool,
    closed: AtomicBool,
}

impl Proxy {
    pub(crate) fn to(server: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.closed.load(SeqCst) {
                    return;
                }
                if !accepting.refusing.load(SeqCst) {
                    accepting.connections.fetch_add(1, SeqCst);
                    join(&accepting, client, server);
                }
            }
        });
        Proxy { port, shared }
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
            lock(&self.shared.streams).drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        lock(&self.shared.streams).drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
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
    let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
    for stream in [&client, &upstream] {
        stream.set_nodelay(true).expect("a socket option");
        lock(&shared.streams).push(clone(stream));
    }
    let waiting: Arc<Mutex<VecDeque<Vec<u8>>>> = Arc::default();
    let pumps = [(Way::Request, clone(&client), clone(&upstream)), (Way::Reply, upstream, client)];
    for (way, from, to) in pumps {
        let (shared, waiting) = (Arc::clone(shared), Arc::clone(&waiting));
        thread::spawn(move || {
            let ends = [clone_of(&from), clone_of(&to)];
            pump(&shared, way, from, to, &waiting);
            ends.iter().flatten().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        });
    }
}

fn clone_of(stream: &TcpStream) -> Option<TcpStream> {
    stream.try_clone().ok()
}

fn pump(shared: &Shared, way: Way, from: TcpStream, to: TcpStream, waiting: &Mutex<VecDeque<Vec<u8>>>) {
    let mut from = BufReader::new(from);
    let to = Arc::new(Mutex::new(to));
    let mut mute = false;
    while let Some(message) = read_message(&mut from) {
        let request = match way {
            Way::Request => {
                lock(&shared.seen).push(message.clone());
                message.clone()
            }
            Way::Reply => lock(waiting).pop_front().unwrap_or_default(),
        };
        let fate = shared.fate(way, &request);
        // The server will answer whatever reaches it whole.
        let reaches = !matches!(fate, Some(Fate::Lose | Fate::Cut | Fate::Halve));
        if way == Way::Request && reaches && !mute {
            lock(waiting).push_back(message.clone());
        }
        if mute {
            continue;
        }
        let sent = match fate {
            None => lock(&to).write_all(&message),
            Some(Fate::Lose) => Ok(()),
            Some(Fate::Hold) => {
                lock(&shared.held).push((Arc::clone(&to), message));
                Ok(())
            }
            Some(Fate::Cut) => return,
            Some(Fate::Halve) => {
                mute = true;
                lock(&to).write_all(&message[..message.len() / 2])
            }
            Some(Fate::Precede(bytes)) => lock(&to).write_all(&[bytes, &message].concat()),
        };
        if sent.is_err() {
            return;
        }
    }
    // A held message must outlive its connection's other way: its sender gave up, and it still arrives.
    while lock(&shared.held).iter().any(|(stream, _)| Arc::ptr_eq(stream, &to)) && !shared.closed.load(SeqCst) {
        thread::sleep(Duration::from_millis(2));
    }
    if way == Way::Request {
        // What was just released is executed before the connection goes.
        thread::sleep(Duration::from_millis(50));
    }
}

impl Shared {
    fn fate(&self, way: Way, request: &[u8]) -> Option<Fate> {
        let mut rules = lock(&self.rules);
        let rule = rules.iter_mut().find(|rule| rule.way == way && rule.times > 0 && (rule.matches)(request))?;
        rule.times -= 1;
        Some(rule.fate.clone())
    }
}

/// One whole RESP message as it stands on the wire.
pub(crate) fn read_message(from: &mut impl BufRead) -> Option<Vec<u8>> {
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
