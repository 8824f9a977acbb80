//! What the watchdog does for somebody who is gone: a release that had no answer, a take-back of an
//! attempt that may be executed late.

use std::{sync::Arc, time::Duration};

use log::{debug, warn};

use super::agenda::contained;
use super::held::Held;
use crate::clock::Moment;
use crate::nodes::{Key, Nodes, NotAfter, Order, Performed, Verdict};

#[derive(Debug)]
pub(crate) struct Errand {
    key: Arc<Key>,
    token: String,
    task: Task,
    /// How long a call of it may take.
    pub(crate) io: Duration,
    /// The longest that a lease which it is about can last from its start on.
    longest: Duration,
    /// Later than this it has no object any more.
    until: Moment,
    failures: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// Release; and then take back, if there is something to take back.
    Release(Option<NotAfter>),
    Leave(NotAfter),
    /// Pass on what was granted to an acquisition that had been given up, if it is that grant still.
    GiveBack(u64),
}

/// The longest that an attempt may be executed after its caller gave it up, by the server's clock as it
/// was known then.
pub(crate) fn longest_ghost(io: Duration) -> Duration {
    2 * io + Duration::from_millis(150)
}

impl Errand {
    /// Goes on with the release of a hold until its lease is over, wherever that may be known.
    pub(crate) fn release(held: &Held) -> Errand {
        let longest = held.terms.ttl.max(Moment::now().until(held.valid()));
        Errand::new(&held.key, &held.token, Task::Release(held.ghost), longest, held.io)
    }

    /// Takes an acquisition back as soon as no attempt of it can be executed any more.
    pub(crate) fn leave(key: &Arc<Key>, token: &str, not_after: NotAfter, ttl: Duration, io: Duration) -> Errand {
        Errand::new(key, token, Task::Leave(not_after), ttl, io)
    }

    /// Passes a grant on that its waiter, which had been given up, has no use for.
    pub(crate) fn give_back(key: &Arc<Key>, token: &str, fence: u64, px: Duration, io: Duration) -> Errand {
        Errand::new(key, token, Task::GiveBack(fence), px, io)
    }

    fn new(key: &Arc<Key>, token: &str, task: Task, longest: Duration, io: Duration) -> Errand {
        Errand { key: Arc::clone(key), token: token.to_owned(), task, io, longest, until: Moment::PAST, failures: 0 }
    }

    /// When to do it first. From here on its time runs.
    pub(crate) fn begin(&mut self, nodes: &dyn Nodes) -> Moment {
        let first = Moment::now().after(match self.task {
            Task::Release(_) | Task::GiveBack(_) => Duration::ZERO,
            // Whatever became of the server's clock since: no attempt was good for longer.
            Task::Leave(not_after) => nodes.until(not_after).min(longest_ghost(self.io)),
        });
        self.until = first.after(self.longest).after(2 * self.io);
        first
    }

    pub(crate) fn order(&self) -> Order<'_> {
        let (key, token) = (&*self.key, &*self.token);
        match self.task {
            Task::Release(_) => Order::Release { key, token },
            Task::Leave(not_after) => Order::Leave { key, token, fence: None, not_after },
            Task::GiveBack(fence) => Order::Leave { key, token, fence: Some(fence), not_after: NotAfter::NONE },
        }
    }

    /// When to go on after `performed`; `None` if it is done.
    pub(crate) fn after(&mut self, performed: &Performed, nodes: &dyn Nodes) -> Option<Moment> {
        match (&performed.verdict, self.task) {
            (Err(_), _) => self.again(nodes),
            (Ok(Verdict::NotYet), Task::Leave(_)) => self.at(Moment::now().after(self.io), nodes),
            (Ok(_), Task::Release(Some(not_after))) => {
                self.task = Task::Leave(not_after);
                Some(self.begin(nodes))
            }
            (Ok(_), _) => {
                contained(|| debug!("lock {:?} was released or taken back in the background", self.key.text));
                None
            }
        }
    }

    /// When to try again after no answer.
    pub(crate) fn again(&mut self, nodes: &dyn Nodes) -> Option<Moment> {
        self.failures += 1;
        let pause = (self.io / 16 * (1 << self.failures.min(4))).max(Duration::from_millis(2));
        self.at(Moment::now().after(pause), nodes)
    }

    fn at(&mut self, next: Moment, nodes: &dyn Nodes) -> Option<Moment> {
        if next < self.until {
            return Some(next);
        }
        let Task::Release(ghost) = self.task else { return None };
        let key = &self.key.text;
        contained(|| warn!("lock {key:?} could not be released while its lease lasted: it ended by its ttl"));
        // What a late attempt may have taken since is not covered by that.
        self.task = Task::Leave(ghost?);
        Some(self.begin(nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Single;
    use crate::server::{Address, Class, Failure, Pool};

    const IO: Duration = Duration::from_millis(100);
    const TTL: Duration = Duration::from_secs(1);

    /// Nothing is asked of this address: an errand only says what is to be asked, and when.
    fn nodes() -> Single {
        let info = redis::IntoConnectionInfo::into_connection_info("redis://127.0.0.1:1/").unwrap();
        Single::new(Pool::new(Address::new(info, "test"), 1))
    }

    fn begun(task: Task) -> Errand {
        let mut errand = Errand::new(&Arc::new(Key::new("k")), "token", task, TTL, IO);
        errand.begin(&nodes());
        errand
    }

    fn answer(verdict: Verdict) -> Performed {
        Performed { verdict: Ok(verdict), ghost: false }
    }

    fn no_answer() -> Performed {
        Performed { verdict: Err(Failure::new(Class::Unreachable)), ghost: true }
    }

    #[test]
    fn a_take_back_is_repeated_until_it_was_late_enough_to_be_the_last() {
        let mut errand = begun(Task::Leave(NotAfter::NONE));
        for _ in 0..3 {
            let again = errand.after(&answer(Verdict::NotYet), &nodes());
            assert!(again.is_some_and(|again| again > Moment::now().after(IO / 2)), "an I/O timeout later");
        }
        assert_eq!(errand.after(&answer(Verdict::Final), &nodes()), None);
    }

    #[test]
    fn what_had_no_answer_is_tried_again_until_its_lease_is_over() {
        for task in [Task::Release(None), Task::Leave(NotAfter::NONE)] {
            let mut errand = begun(task);
            for _ in 0..50 {
                assert!(errand.after(&no_answer(), &nodes()).is_some_and(|again| again > Moment::now()));
            }
            errand.until = Moment::now();
            assert_eq!(errand.after(&no_answer(), &nodes()), None);
        }
    }

    #[test]
    fn a_release_is_followed_by_the_take_back_of_what_may_come_late() {
        for verdict in [Verdict::Ours, Verdict::Gone, Verdict::Others] {
            assert_eq!(begun(Task::Release(None)).after(&answer(verdict), &nodes()), None);
            let mut errand = begun(Task::Release(Some(NotAfter::NONE)));
            assert!(errand.after(&answer(verdict), &nodes()).is_some());
            assert!(matches!(errand.order(), Order::Leave { token: "token", fence: None, .. }));
        }
    }
}
