//! The two threads of a connection: each reads one message after another, and lets it meet its fate.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use super::{Fate, Joint, Receiver, Rule, Shared, Way, lock};

/// Two threads a connection: requests one way, replies the other.
pub(super) fn join(shared: &Arc<Shared>, client: TcpStream, server: u16) {
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
        Way::Reply => {
            let request = lock(waiting).pop_front().unwrap_or_default();
            if !message.starts_with(b"-NOSCRIPT") {
                lock(&shared.answered).push(request.clone());
            }
            request
        }
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
