//! The data: a value of one of six types under each key, with a deadline if it has one. Called by the
//! commands; knows none of them.
//!
//! Deadlines are on the monotonic clock, which stands still while a command or a script runs, as in
//! Redis: nothing expires between two steps of a script.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Instant,
};

use super::resp::Word;

pub(crate) type Text = Word;
pub(crate) type List = VecDeque<Word>;
pub(crate) type Set = BTreeSet<Word>;
/// In the order of insertion, as small hashes are in Redis.
pub(crate) type Hash = Vec<(Word, Word)>;
/// By score, then by member.
pub(crate) type SortedSet = Vec<(f64, Word)>;
pub(crate) type Stream = Vec<((u64, u64), Vec<Word>)>;

pub(crate) enum Value {
    Text(Text),
    List(List),
    Set(Set),
    Hash(Hash),
    SortedSet(SortedSet),
    Stream(Stream),
}

/// A type that a key can have.
pub(crate) trait Kind: Default {
    fn wrap(self) -> Value;
    fn of(value: &mut Value) -> Option<&mut Self>;
}

macro_rules! kinds {
    ($($kind:ident),*) => {$(
        impl Kind for $kind {
            fn wrap(self) -> Value {
                Value::$kind(self)
            }

            fn of(value: &mut Value) -> Option<&mut Self> {
                if let Value::$kind(inner) = value { Some(inner) } else { None }
            }
        }
    )*};
}

kinds!(Text, List, Set, Hash, SortedSet, Stream);

impl Value {
    /// As TYPE says it.
    fn name(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::Hash(_) => "hash",
            Value::SortedSet(_) => "zset",
            Value::Stream(_) => "stream",
        }
    }

    /// Such a collection does not exist.
    fn is_empty(&self) -> bool {
        match self {
            Value::List(list) => list.is_empty(),
            Value::Set(set) => set.is_empty(),
            Value::Hash(hash) => hash.is_empty(),
            Value::SortedSet(sorted) => sorted.is_empty(),
            Value::Text(_) | Value::Stream(_) => false,
        }
    }
}

struct Entry {
    value: Value,
    /// In the milliseconds of [`Keyspace::now`].
    deadline: Option<i64>,
}

pub(crate) struct Keyspace {
    entries: HashMap<Word, Entry>,
    start: Instant,
    now: i64,
    swept: i64,
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const SWEEP_EVERY: i64 = 1000;

impl Keyspace {
    pub(crate) fn new() -> Keyspace {
        Keyspace { entries: HashMap::new(), start: Instant::now(), now: 0, swept: 0 }
    }

    /// The clock goes on; what nobody asks for expires, too.
    pub(crate) fn tick(&mut self) {
        self.now = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        if self.now - self.swept >= SWEEP_EVERY {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        let now = self.now;
        self.entries.retain(|_, entry| entry.deadline.is_none_or(|deadline| now <= deadline));
        self.swept = now;
    }

    /// Milliseconds since the start.
    pub(crate) fn now(&self) -> i64 {
        self.now
    }

    fn live(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now;
        if self.entries.get(key)?.deadline.is_some_and(|deadline| deadline < now) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    /// What stands there, if it is of this type; nothing if the key is free.
    pub(crate) fn find<K: Kind>(&mut self, key: &[u8]) -> Result<Option<&mut K>, String> {
        match self.live(key) {
            None => Ok(None),
            Some(entry) => K::of(&mut entry.value).map(Some).ok_or_else(|| WRONG_TYPE.to_owned()),
        }
    }

    /// The same, made where the key is free.
    pub(crate) fn make<K: Kind>(&mut self, key: &[u8]) -> Result<&mut K, String> {
        if self.live(key).is_none() {
            self.put(key, K::default(), None);
        }
        Ok(self.find(key)?.expect("it was just made"))
    }

    /// Changes what stands there, and removes a collection that is empty after it.
    pub(crate) fn change<K: Kind, T>(
        &mut self,
        key: &[u8],
        with: impl FnOnce(&mut K) -> T,
    ) -> Result<Option<T>, String> {
        let changed = self.find(key)?.map(with);
        if self.entries.get(key).is_some_and(|entry| entry.value.is_empty()) {
            self.entries.remove(key);
        }
        Ok(changed)
    }

    pub(crate) fn put<K: Kind>(&mut self, key: &[u8], value: K, deadline: Option<i64>) {
        self.entries.insert(key.to_vec(), Entry { value: value.wrap(), deadline });
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.live(key).is_some() && self.entries.remove(key).is_some()
    }

    pub(crate) fn holds(&mut self, key: &[u8]) -> bool {
        self.live(key).is_some()
    }

    pub(crate) fn type_of(&mut self, key: &[u8]) -> &'static str {
        self.live(key).map_or("none", |entry| entry.value.name())
    }

    /// Moves value and deadline; is there anything to move?
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) -> bool {
        let Some(entry) = self.live(from).is_some().then(|| self.entries.remove(from)).flatten() else { return false };
        self.entries.insert(to.to_vec(), entry);
        true
    }

    /// The deadline of a key that is there.
    pub(crate) fn deadline(&mut self, key: &[u8]) -> Option<&mut Option<i64>> {
        self.live(key).map(|entry| &mut entry.deadline)
    }

    pub(crate) fn keys(&mut self) -> impl Iterator<Item = &Word> {
        self.sweep();
        self.entries.keys()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}
