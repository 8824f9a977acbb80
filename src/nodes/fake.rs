//! No server: a table in memory that answers as the scripts do, for the unit tests of users.
//!
//! It is no lock between processes, and nothing but `testing` makes one. Every call is answered at once
//! by its caller's own thread, so no attempt is ever late and none outlives its caller. Unlike a
//! server it can end a lease and have its holder know: it is told of every hold.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;

use super::{
    Attempt, Attempted, Condition, HandsOver, Key, Lapse, Nodes, NotAfter, Order, Outcome, Owner, Performed, Unwritten,
    Verdict, Writes, Written,
};
use crate::clock::Moment;
use crate::server::{Class, Failure};

#[derive(Debug, Default)]
pub(crate) struct Fake {
    /// Guards all that there is: each call is one step, as a script is.
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    down: bool,
    leases: HashMap<Arc<str>, Lease>,
    /// The highest fence minted for a key.
    fences: HashMap<Arc<str>, u64>,
}

#[derive(Debug)]
struct Lease {
    token: String,
    until: Moment,
    /// Whoever believes to have it.
    holds: Vec<Weak<dyn Lapse>>,
}

/// Whose a key is.
enum Whose<'a> {
    Mine(&'a mut Lease),
    Others(&'a Lease),
    Nobodys,
}

impl Fake {
    pub(crate) fn set_down(&self, down: bool) {
        self.table.lock().down = down;
    }

    pub(crate) fn is_down(&self) -> bool {
        self.table.lock().down
    }

    /// Ends the lease of a key, if there is one, also while it is down; its holder knows at once.
    pub(crate) fn expire(&self, key: &str) {
        let mut table = self.table.lock();
        let ended = table.leases.remove(key);
        let holds: Vec<_> = ended.iter().flat_map(|lease| &lease.holds).filter_map(Weak::upgrade).collect();
        // Under the mutex: nobody else is granted the key while a guard of it is valid.
        holds.iter().for_each(|hold| hold.lapse());
        // And before a hold is dropped, which may be the last of it and of what its user gave it.
        drop(table);
    }

    /// The keys that are held.
    pub(crate) fn keys(&self) -> Vec<Arc<str>> {
        let (table, now) = (self.table.lock(), Moment::now());
        let mut keys: Vec<_> = table.leases.iter().filter(|(_, lease)| lease.until > now).map(|(key, _)| key).collect();
        keys.sort();
        keys.into_iter().cloned().collect()
    }

    /// One step, if anybody answers.
    fn step<T>(&self, step: impl FnOnce(&mut Table) -> T) -> Result<T, Failure> {
        let mut table = self.table.lock();
        if table.down {
            return Err(Failure::with_text(Class::Unreachable, "the fake is set down"));
        }
        Ok(step(&mut table))
    }
}

impl Table {
    /// The lease of a key, unless it is over by the clock.
    fn lease(&mut self, key: &Key) -> Option<&mut Lease> {
        let now = Moment::now();
        self.leases.get_mut(&key.text).filter(|lease| lease.until > now)
    }

    fn whose(&mut self, key: &Key, token: &str) -> Whose<'_> {
        match self.lease(key) {
            Some(lease) if lease.token == token => Whose::Mine(lease),
            Some(lease) => Whose::Others(lease),
            None => Whose::Nobodys,
        }
    }

    /// A fence by the rule of `try.lua`: each begins a block of 17.
    fn mint(&mut self, key: &Key, hint: u64) -> u64 {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let last = self.fences.get(&key.text).copied().unwrap_or_default();
        let fence = u64::try_from(time).unwrap_or_default().max(last + 17).max(hint + 1);
        self.fences.insert(Arc::clone(&key.text), fence);
        fence
    }

    fn acquire(&mut self, &Attempt { key, token, ttl, hint, .. }: &Attempt<'_>, sent: Moment) -> Outcome {
        match self.whose(key, token) {
            Whose::Others(lease) => {
                return Outcome::Taken { remaining: Some(sent.until(lease.until)), hands_over: HandsOver::No };
            }
            Whose::Mine(lease) => {
                lease.keep(ttl);
                if let Some(&fence) = self.fences.get(&key.text).filter(|fence| **fence > hint) {
                    return Outcome::Granted { fence, sent };
                }
            }
            Whose::Nobodys => {
                let lease = Lease { token: token.to_owned(), until: ends(ttl), holds: Vec::new() };
                self.leases.insert(Arc::clone(&key.text), lease);
            }
        }
        Outcome::Granted { fence: self.mint(key, hint), sent }
    }

    fn perform(&mut self, order: &Order<'_>) -> Verdict {
        match *order {
            Order::Renew { key, token, ttl, fence } => self.renew(key, token, ttl, fence),
            Order::Release { key, token } => self.release(key, token),
            Order::Leave { key, token, fence, .. } => {
                if fence.is_none() || fence == self.fences.get(&key.text).copied() {
                    self.release(key, token);
                }
                Verdict::Final
            }
        }
    }

    fn renew(&mut self, key: &Key, token: &str, ttl: u64, fence: u64) -> Verdict {
        let last = self.fences.get(&key.text).copied().unwrap_or_default();
        match self.whose(key, token) {
            // Another lease of the same token: the hold was resumed.
            Whose::Mine(_) if last > fence => Verdict::Others,
            Whose::Mine(lease) => {
                lease.keep(ttl);
                Verdict::Ours
            }
            Whose::Others(_) => Verdict::Others,
            Whose::Nobodys => Verdict::Gone,
        }
    }

    fn release(&mut self, key: &Key, token: &str) -> Verdict {
        match self.whose(key, token) {
            Whose::Mine(_) => {
                self.leases.remove(&key.text);
                Verdict::Ours
            }
            Whose::Others(_) => Verdict::Others,
            Whose::Nobodys => Verdict::Gone,
        }
    }
}

impl Lease {
    /// The whole ttl once more; never less than what is left.
    fn keep(&mut self, ttl: u64) {
        self.until = self.until.max(ends(ttl));
    }
}

fn ends(ttl: u64) -> Moment {
    Moment::now().after(Duration::from_millis(ttl))
}

impl Nodes for Fake {
    fn acquire(&self, attempt: &Attempt<'_>) -> Attempted {
        let sent = Moment::now();
        Attempted { outcome: self.step(|table| table.acquire(attempt, sent)), ghost: None, calls: Vec::new() }
    }

    fn resume(&self, key: &Key, token: &str, ttl: u64, _io: Duration) -> Result<Option<(u64, Moment)>, Failure> {
        let sent = Moment::now();
        self.step(|table| {
            let Whose::Mine(lease) = table.whose(key, token) else { return None };
            lease.keep(ttl);
            Some((table.mint(key, 0), sent))
        })
    }

    fn perform(&self, order: &Order<'_>, _io: Duration) -> Performed {
        Performed { verdict: self.step(|table| table.perform(order)), ghost: false }
    }

    fn perform_all(&self, orders: &[Order<'_>], io: Duration) -> Vec<Performed> {
        orders.iter().map(|order| self.perform(order, io)).collect()
    }

    fn force(&self, key: &Key, _io: Duration) -> Result<bool, Failure> {
        self.step(|table| {
            let held = table.lease(key).is_some();
            table.leases.remove(&key.text);
            held
        })
    }

    fn owner(&self, key: &Key, _io: Duration) -> Result<Option<Owner>, Failure> {
        self.step(|table| {
            let lease = table.lease(key)?;
            Some(Owner { token: lease.token.clone(), remaining: Some(Moment::now().until(lease.until)) })
        })
    }

    fn write(&self, _: Condition<'_>, _: &Writes<'_>, _io: Duration) -> Result<Written, Unwritten> {
        let text = "the fake keeps no data: guarded writes need a Redis";
        let failure = self.step(|_| Failure::with_text(Class::Setup, text)).unwrap_or_else(|down| down);
        Err(Unwritten { failure, ghost: false })
    }

    fn ping(&self, _io: Duration) -> Result<(), Failure> {
        self.step(|_| ())
    }

    fn is_down(&self) -> bool {
        Fake::is_down(self)
    }

    fn until(&self, _not_after: NotAfter) -> Duration {
        Duration::ZERO
    }

    fn kept(&self, key: &Key, token: &str, hold: Weak<dyn Lapse>) {
        let ended = match self.table.lock().whose(key, token) {
            Whose::Mine(lease) => return lease.holds.push(hold),
            // Ended between its grant and here.
            Whose::Others(_) | Whose::Nobodys => hold,
        };
        if let Some(hold) = ended.upgrade() {
            hold.lapse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IO: Duration = Duration::ZERO;

    fn fence_of(fake: &Fake, key: &Key, token: &str, hint: u64) -> Option<u64> {
        let attempt = Attempt { key, token, ttl: 60_000, hint, io: IO, ask: super::super::Ask::Try };
        match fake.acquire(&attempt).outcome.unwrap() {
            Outcome::Granted { fence, .. } => Some(fence),
            Outcome::Taken { .. } | Outcome::Queued(..) => None,
        }
    }

    fn verdict_of(fake: &Fake, order: &Order<'_>) -> Verdict {
        fake.perform(order, IO).verdict.unwrap()
    }

    #[test]
    fn each_lease_has_a_block_of_17_fences_above_what_the_client_has_had() {
        let (fake, key) = (Fake::default(), Key::new("k"));
        let mut last = 0;
        for i in 0..100 {
            let fence = fence_of(&fake, &key, &i.to_string(), 0).unwrap();
            assert!(fence >= last + 17, "{fence} after {last}");
            last = fence;
            assert!(fake.force(&key, IO).unwrap());
        }
        let far = 1 << 52;
        assert_eq!(fence_of(&fake, &key, "t", far), Some(far + 1));
        assert_eq!(fence_of(&fake, &key, "t", 0), Some(far + 1), "the same acquisition");
        assert_eq!(fence_of(&fake, &key, "t", far + 1), Some(far + 18));
        assert_eq!(fake.resume(&key, "t", 60_000, IO).unwrap().unwrap().0, far + 35, "a hold that was taken over");
    }

    #[test]
    fn an_order_finds_what_a_script_would_find() {
        let (fake, key) = (Fake::default(), Key::new("k"));
        let renew = |token, fence| Order::Renew { key: &key, token, ttl: 60_000, fence };
        let leave = |token, fence| Order::Leave { key: &key, token, fence, not_after: NotAfter::NONE };
        assert_eq!(verdict_of(&fake, &renew("mine", 1)), Verdict::Gone);
        assert_eq!(verdict_of(&fake, &Order::Release { key: &key, token: "mine" }), Verdict::Gone);
        let fence = fence_of(&fake, &key, "mine", 0).unwrap();
        assert_eq!(fence_of(&fake, &key, "yours", 0), None);
        assert_eq!(verdict_of(&fake, &renew("mine", fence)), Verdict::Ours);
        assert_eq!(verdict_of(&fake, &renew("mine", fence - 1)), Verdict::Others, "an earlier lease of the token");
        assert_eq!(verdict_of(&fake, &renew("yours", fence)), Verdict::Others);
        assert_eq!(verdict_of(&fake, &Order::Release { key: &key, token: "yours" }), Verdict::Others);
        for (token, of) in [("yours", None), ("mine", Some(fence - 1)), ("mine", Some(fence))] {
            assert!(fake.owner(&key, IO).unwrap().is_some());
            assert_eq!(verdict_of(&fake, &leave(token, of)), Verdict::Final);
        }
        assert!(fake.owner(&key, IO).unwrap().is_none());
    }
}
