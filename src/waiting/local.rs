//! What the threads of one client share about one key: its gates, the highest fence they had, and the
//! last news from Redis. It lives while a lock or a guard for the key does, and then is gone.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::gate::Gate;
use super::listener::Listener;
use super::seat::Left;
use crate::clock::Moment;
use crate::keeping::{Held, Terms};
use crate::nodes::Key;
use crate::server::Failure;

/// All keys that the locks of one client name.
#[derive(Debug)]
pub(crate) struct Locals {
    pub(crate) listener: Arc<Listener>,
    /// Guards which keys are in use; by the exact text.
    keys: Mutex<HashMap<Arc<str>, Weak<LocalKey>>>,
    /// The process that made it. In a forked child the mutex may be held by a thread that is not there.
    pid: u32,
}

/// Options that shape a lease: locks that differ in them never share one, nor a gate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) terms: Terms,
    pub(crate) label: Option<Arc<str>>,
    /// Waits in the lock's queue where it can.
    pub(crate) in_turn: bool,
}

pub(crate) struct LocalKey {
    pub(crate) key: Arc<Key>,
    pub(crate) news: News,
    pub(crate) listener: Arc<Listener>,
    /// The last acquisition had to queue.
    queued: AtomicBool,
    /// The highest fence that a guard of this client has had for the key.
    hint: AtomicU64,
    /// Guards the last hold of this client: no two are valid at once.
    holder: Mutex<Weak<Held>>,
    /// Guards the gates that are in use.
    gates: Mutex<Vec<(Shape, Weak<Gate<Left>>)>>,
    locals: Weak<Locals>,
}

impl Locals {
    pub(crate) fn new(listener: Listener) -> Locals {
        Locals { listener: Arc::new(listener), keys: Mutex::default(), pid: std::process::id() }
    }

    pub(crate) fn key(self: &Arc<Self>, text: &str) -> Arc<LocalKey> {
        if self.is_inherited() {
            // Good for nothing but to be told so.
            return Arc::new(LocalKey::new(text, Weak::new(), &self.listener));
        }
        if let Some(found) = self.find(text) {
            return found;
        }
        // Made outside of the mutex: an awkward name takes a search of milliseconds.
        let made = Arc::new(LocalKey::new(text, Arc::downgrade(self), &self.listener));
        let mut keys = self.keys.lock();
        if let Some(found) = keys.get(text).and_then(Weak::upgrade) {
            // Dropped before `made`, whose end looks here.
            drop(keys);
            return found;
        }
        keys.insert(Arc::clone(&made.key.text), Arc::downgrade(&made));
        made
    }

    fn is_inherited(&self) -> bool {
        std::process::id() != self.pid
    }

    fn find(&self, text: &str) -> Option<Arc<LocalKey>> {
        self.keys.lock().get(text).and_then(Weak::upgrade)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.keys.lock().len()
    }
}

impl LocalKey {
    fn new(text: &str, locals: Weak<Locals>, listener: &Arc<Listener>) -> LocalKey {
        LocalKey {
            key: Arc::new(Key::new(text)),
            news: News::default(),
            listener: Arc::clone(listener),
            queued: AtomicBool::new(false),
            hint: AtomicU64::new(0),
            holder: Mutex::new(Weak::new()),
            gates: Mutex::default(),
            locals,
        }
    }

    /// The gate of locks of this shape.
    pub(crate) fn gate(&self, shape: &Shape) -> Arc<Gate<Left>> {
        let mut gates = self.gates.lock();
        gates.retain(|(_, gate)| gate.strong_count() > 0);
        let found = gates.iter().find(|(of, _)| of == shape).and_then(|(_, gate)| gate.upgrade());
        found.unwrap_or_else(|| {
            let gate = Arc::new(Gate::new());
            gates.push((shape.clone(), Arc::downgrade(&gate)));
            gate
        })
    }

    /// An attempt had no useful answer. With the first such that it sees a waiter's patience begins to
    /// run, and those who wait in the gates do not look by themselves.
    pub(crate) fn failed(&self, failure: &Failure) {
        self.news.failed(failure);
        let gates: Vec<_> = self.gates.lock().iter().filter_map(|(_, gate)| gate.upgrade()).collect();
        gates.iter().for_each(|gate| gate.call());
    }

    /// An acquisition ended or went on: did it have to queue?
    pub(crate) fn note_queue(&self, queued: bool) {
        if self.queued.load(Relaxed) != queued {
            self.queued.store(queued, Relaxed);
        }
    }

    pub(crate) fn expects_queue(&self) -> bool {
        self.queued.load(Relaxed)
    }

    pub(crate) fn hint(&self) -> u64 {
        self.hint.load(Relaxed)
    }

    /// A guard of this client has the key.
    pub(crate) fn held_by(&self, held: &Arc<Held>) {
        self.hint.fetch_max(held.fence, Relaxed);
        *self.holder.lock() = Arc::downgrade(held);
    }

    /// Does a guard of this client have the key, whatever lock it was made by?
    pub(crate) fn is_held(&self) -> bool {
        let holder = self.holder.lock().upgrade();
        holder.is_some_and(|held| held.is_valid() && !held.is_closed())
    }
}

impl Drop for LocalKey {
    fn drop(&mut self) {
        if let Some(locals) = self.locals.upgrade().filter(|locals| !locals.is_inherited()) {
            let mut keys = locals.keys.lock();
            // Another lock may have brought the name back meanwhile.
            if keys.get(&self.key.text).is_some_and(|entry| entry.strong_count() == 0) {
                keys.remove(&self.key.text);
            }
        }
    }
}

/// What Redis last said about a key, to whichever thread asked.
#[derive(Default)]
pub(crate) struct News {
    /// When it was last known that Redis answers usefully: granted, taken, or held here.
    useful: AtomicU64,
    failing: AtomicBool,
    /// Guards the failure of the last attempt, and when it was.
    failure: Mutex<Option<(Failure, Moment)>>,
}

impl News {
    /// Granted or taken.
    pub(crate) fn answered(&self) {
        self.touch();
        if self.failing.swap(false, Relaxed) {
            *self.failure.lock() = None;
        }
    }

    /// A thread of this client held the key up to now, so nobody has asked.
    pub(crate) fn touch(&self) {
        self.useful.store(Moment::now().to_bits(), Relaxed);
    }

    /// The last attempt had no useful answer.
    fn failed(&self, failure: &Failure) {
        *self.failure.lock() = Some((failure.clone(), Moment::now()));
        self.failing.store(true, Relaxed);
    }

    /// Why the last attempt had no useful answer, if it had none, for a waiter that began at `start`: an
    /// older failure is not its own.
    pub(crate) fn failure_since(&self, start: Moment) -> Option<Failure> {
        if !self.failing.load(Relaxed) {
            return None;
        }
        let failure = self.failure.lock();
        failure.as_ref().filter(|(_, at)| *at >= start).map(|(failure, _)| failure.clone())
    }

    /// Since when there was no useful answer, for a waiter that began at `start`, and why the last one
    /// was none; `None` if it was useful, or nobody has asked since.
    pub(crate) fn silent_since(&self, start: Moment) -> Option<(Moment, Failure)> {
        let failure = self.failure_since(start)?;
        Some((start.max(Moment::from_bits(self.useful.load(Relaxed))), failure))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keeping::{Keeper, Renew};
    use crate::nodes::Single;
    use crate::server::{Address, Pool};

    fn shape(secs: u64) -> Shape {
        Shape {
            terms: Terms { ttl: Duration::from_secs(secs), renew: Renew::WhileHeld, passes: 16 },
            label: None,
            in_turn: true,
        }
    }

    fn locals() -> Arc<Locals> {
        let info = redis::IntoConnectionInfo::into_connection_info("redis://127.0.0.1:1/").unwrap();
        let pool = Pool::new(Address::new(info, "test"), 1);
        let keeper = Keeper::new("test", Arc::new(Single::new(pool)), Duration::from_secs(1));
        Arc::new(Locals::new(Listener::of(&keeper)))
    }

    #[test]
    fn a_name_is_forgotten_when_nobody_uses_it() {
        let locals = locals();
        let (a, again, other) = (locals.key("a"), locals.key("a"), locals.key("a "));
        assert!(Arc::ptr_eq(&a, &again) && !Arc::ptr_eq(&a, &other));
        assert_eq!(locals.len(), 2);
        drop((a, other));
        assert_eq!(locals.len(), 1);
        drop(again);
        assert_eq!(locals.len(), 0);
    }

    #[test]
    fn locks_whose_leases_differ_never_share_a_gate() {
        let key = locals().key("k");
        let gate = key.gate(&shape(1));
        assert!(Arc::ptr_eq(&gate, &key.gate(&shape(1))));
        assert!(!Arc::ptr_eq(&gate, &key.gate(&shape(2))));
        let labelled = Shape { label: Some("me".into()), ..shape(1) };
        assert!(!Arc::ptr_eq(&gate, &key.gate(&labelled)));
    }
}
