//! One thread and one subscription a client: messages of grants go to the seats that wait for them.
//!
//! It starts when a lock is first found taken, and ends with its client. Waiters work without it: they
//! look by themselves, only more often. Whether the server sees it is asked of the server, with every
//! `wait`.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use log::{info, warn};

use super::mailbox::{Announced, Mailbox};
use crate::clock::Moment;
use crate::keeping::{Enrolment, Errand, Keeper, Watchdog};
use crate::monitor::Monitor;
use crate::nodes::{Go, Heard, Key, Message, Nodes};
use crate::server::{Class, Failure};

pub(crate) struct Listener {
    shared: Arc<Shared>,
    nodes: Arc<dyn Nodes>,
    watchdog: Arc<Watchdog>,
    io: Duration,
    name: Arc<str>,
}

struct Shared {
    channel: String,
    /// The process that made it: in a forked child the mutex may be held by a thread that is not there.
    pid: u32,
    /// Guards who waits and what is known of the subscription. It is called when the client is gone.
    state: Monitor<State>,
}

#[derive(Default)]
struct State {
    running: bool,
    closed: bool,
    /// The server has confirmed the subscription.
    subscribed: bool,
    /// Subscribing failed the last time.
    failed: bool,
    /// The queue's commands are refused: this client can neither wait there nor hand over.
    refused: bool,
    /// `wait`s in a row to which the server said that it does not see the subscription.
    unseen: u32,
    /// That it cannot be told was logged.
    said: bool,
    /// Whether the server is there is to be asked now.
    doubted: bool,
    /// By token.
    enrolled: HashMap<Arc<str>, Weak<Enrolled>>,
    /// Holds that were given away, until their leases are over.
    given: Vec<(Moment, Arc<dyn Enrolment>)>,
}

/// A token is waited for or held here: its messages are not a stranger's.
pub(crate) struct Enrolled {
    token: Arc<str>,
    /// Of the lock that it is for.
    key: Arc<Key>,
    pub(crate) mailbox: Mailbox,
    shared: Weak<Shared>,
}

/// The pause before a subscription that broke is tried again, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// So often in a row the server may not have seen it.
const UNSEEN: u32 = 2;

impl Listener {
    /// For the client that this keeps.
    pub(crate) fn of(keeper: &Keeper) -> Listener {
        let Keeper { tokens, name, nodes, watchdog, io_timeout: io, .. } = keeper;
        let shared = Arc::new(Shared {
            channel: format!("distlock:client:{}", tokens.client()),
            pid: std::process::id(),
            state: Monitor::default(),
        });
        Listener { shared, nodes: Arc::clone(nodes), watchdog: Arc::clone(watchdog), io: *io, name: Arc::clone(name) }
    }

    /// Somebody has to wait: from now on it is listened.
    pub(crate) fn start(&self) {
        if !self.nodes.can_listen() || std::mem::replace(&mut self.shared.state.lock().running, true) {
            return;
        }
        let (shared, nodes, watchdog) = (Arc::clone(&self.shared), Arc::clone(&self.nodes), Arc::clone(&self.watchdog));
        let (io, name) = (self.io, Arc::clone(&self.name));
        let thread = std::thread::Builder::new().name(format!("distlock-ear {}", name.replace('\0', " ")));
        if let Err(e) = thread.spawn(move || shared.work(&*nodes, &watchdog, io, &name)) {
            warn!("the thread that listens for {:?} cannot be started, waiters poll: {e}", self.name);
            self.shared.state.lock().failed = true;
        }
    }

    /// Where this client hears of grants; empty while nobody listens.
    pub(crate) fn channel(&self) -> &str {
        if self.is_heard() { &self.shared.channel } else { "" }
    }

    /// The subscription is confirmed, and the server sees it.
    pub(crate) fn is_heard(&self) -> bool {
        let state = self.shared.state.lock();
        state.subscribed && state.unseen < UNSEEN
    }

    /// As far as is known, a holder of this client can hand over and a waiter of it be told.
    pub(crate) fn can_push(&self) -> bool {
        let state = self.shared.state.lock();
        let good = !state.failed && !state.refused && state.unseen < UNSEEN;
        good && self.nodes.can_listen() && self.nodes.can_announce()
    }

    /// May this client queue, as far as is known?
    pub(crate) fn can_queue(&self) -> bool {
        !self.shared.state.lock().refused
    }

    /// A `wait` was refused. Where it is for want of a right, so is the handing over: until the
    /// subscription is renewed, neither is tried. (Its holders say so in their tokens, or those who queue
    /// would count on being told.) A memory that is full is so for a while, and a helper key of another
    /// type is one lock's affair.
    pub(crate) fn refused(&self, failure: &Failure) {
        if failure.class == Class::Denied && !std::mem::replace(&mut self.shared.state.lock().refused, true) {
            warn!("redis {:?} refuses the queue of a lock, waiters spin: {failure}", self.name);
        }
    }

    /// A `wait` with a channel was answered: does the server see who listens there?
    pub(crate) fn seen(&self, seen: bool) {
        let mut state = self.shared.state.lock();
        state.unseen = if seen { 0 } else { state.unseen.saturating_add(1) };
        let say = state.unseen == UNSEEN && !std::mem::replace(&mut state.said, true);
        drop(state);
        if say {
            warn!(
                "redis {:?} does not see the subscription of this client, or may not be asked: waiters poll",
                self.name
            );
        }
    }

    /// A grant was found that no message announced: is the server there?
    pub(crate) fn doubt(&self) {
        self.shared.state.lock().doubted = true;
    }

    /// Before the first `wait` of a token leaves.
    pub(crate) fn enroll(&self, key: &Arc<Key>, token: &str) -> Arc<Enrolled> {
        let token: Arc<str> = token.into();
        let enrolled = Arc::new(Enrolled {
            token: Arc::clone(&token),
            key: Arc::clone(key),
            mailbox: Mailbox::default(),
            shared: Arc::downgrade(&self.shared),
        });
        self.shared.state.lock().enrolled.insert(token, Arc::downgrade(&enrolled));
        enrolled
    }

    /// A hold was given away: until its lease is over its messages are ignored.
    pub(crate) fn give_away(&self, enrolled: Arc<dyn Enrolment>, until: Moment) {
        let now = Moment::now();
        let mut state = self.shared.state.lock();
        let over: Vec<_> = state.given.extract_if(.., |(end, _)| *end <= now).collect();
        state.given.push((until, enrolled));
        drop(state);
        drop(over);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.shared.is_inherited() {
            self.shared.state.lock().closed = true;
            self.shared.state.call_all();
        }
    }
}

impl Shared {
    fn is_inherited(&self) -> bool {
        std::process::id() != self.pid
    }

    /// The thread.
    fn work(&self, nodes: &dyn Nodes, watchdog: &Watchdog, io: Duration, name: &str) {
        let mut pause = FIRST_PAUSE;
        loop {
            let outcome = nodes.listen(&self.channel, io, &mut |heard| self.hear(heard, watchdog, io));
            let was_subscribed = self.broken();
            match outcome {
                Ok(()) => return,
                Err(failure) => self.say(&failure, name),
            }
            pause = if was_subscribed { FIRST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
            let mut state = self.state.lock();
            if !state.closed {
                state = self.state.wait_for(state, pause);
            }
            if state.closed {
                return;
            }
        }
    }

    fn hear(&self, heard: Heard<'_>, watchdog: &Watchdog, io: Duration) -> Go {
        match heard {
            Heard::Subscribed => {
                let mut state = self.state.lock();
                (state.subscribed, state.failed, state.refused, state.unseen) = (true, false, false, 0);
                drop(state);
                self.call_all();
            }
            Heard::Message(text) => {
                if let Some(message) = Message::parse(text) {
                    self.deliver(&message, watchdog, io);
                }
            }
            Heard::Silence => {}
        }
        let mut state = self.state.lock();
        if state.closed {
            Go::Stop
        } else if std::mem::take(&mut state.doubted) {
            Go::Ping
        } else {
            Go::On
        }
    }

    fn deliver(&self, message: &Message<'_>, watchdog: &Watchdog, io: Duration) {
        let found = self.state.lock().enrolled.get(message.token).and_then(Weak::upgrade);
        let Message { number, px, fence, token, key } = *message;
        match found {
            Some(enrolled) if *enrolled.key.text == *key => enrolled.mailbox.put(Announced { number, px, fence }),
            // No grant of ours: whoever sent it, nothing is believed of it.
            Some(_) => {}
            // Given up: what was granted is passed on to the next.
            None => {
                watchdog.run(Errand::give_back(&Arc::new(Key::new(key)), token, fence, Duration::from_millis(px), io))
            }
        }
    }

    /// The connection is gone; was it good?
    fn broken(&self) -> bool {
        let mut state = self.state.lock();
        let was = std::mem::replace(&mut state.subscribed, false);
        state.failed = !was;
        drop(state);
        self.call_all();
        was
    }

    /// Every waiter asks again at once: the server then files it as it is now.
    fn call_all(&self) {
        let all: Vec<_> = self.state.lock().enrolled.values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|enrolled| enrolled.mailbox.call());
    }

    fn say(&self, failure: &Failure, name: &str) {
        if failure.class == Class::Denied && !std::mem::replace(&mut self.state.lock().said, true) {
            warn!("redis {name:?} refuses SUBSCRIBE, waiters poll (grant &distlock:*): {failure}");
        } else {
            info!("the subscription to {name:?} broke, waiters poll until it is back: {failure}");
        }
    }
}

#[cfg(test)]
impl Enrolled {
    /// With no listener.
    pub(crate) fn alone(token: &str) -> Arc<Enrolled> {
        let (token, key) = (token.into(), Arc::new(Key::new("k")));
        Arc::new(Enrolled { token, key, mailbox: Mailbox::default(), shared: Weak::new() })
    }
}

impl Enrolment for Enrolled {}

impl Drop for Enrolled {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade().filter(|shared| !shared.is_inherited()) {
            shared.state.lock().enrolled.remove(&self.token);
        }
    }
}

impl fmt::Debug for Enrolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enrolled").finish_non_exhaustive()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("heard", &self.is_heard()).finish_non_exhaustive()
    }
}
