//! Giving a lock back: bounded, at most twice by its caller, then by the watchdog.

use super::errand::Errand;
use super::held::Held;
use super::keeper::Keeper;
use super::lost::LostReason;
use crate::clock::Moment;
use crate::nodes::{NotAfter, Order, Performed, Verdict};
use crate::server::{Class, Failure};

/// How a release ended, for its caller.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The key was ours up to the release.
    Covered,
    /// Redis could not be asked; the lease was good by the clock, and the release goes on.
    Later(Failure),
    Lost(LostReason),
}

impl Keeper {
    /// Releases a hold that nobody uses any more, for one I/O timeout at most. Renewal ends first.
    pub(crate) fn release(&self, held: &Held) -> Ended {
        // The section ends here: whether it was covered does not depend on how long the release takes.
        let covered = held.is_valid();
        if !covered {
            // Whoever wants to be told is told, also if nobody has looked since the lease ended.
            held.lose(None);
        }
        held.close();
        self.watchdog.forget(held);
        self.notifier.forget(held);
        if held.loss() == Some(LostReason::Taken) {
            // Told by Redis. Whoever resumed the hold has it by this very token: it is not ours to end, nor
            // to take back. (A late attempt that took the lock again costs one ttl.)
            return Ended::Lost(LostReason::Taken);
        }
        if self.nodes.is_down() {
            // Known already: a hundred guards must not wait out a hundred timeouts.
            return self.release_later(held, covered, Failure::new(Class::Unreachable));
        }
        let Performed { verdict, ghost } = self.release_now(held);
        match verdict {
            Ok(verdict) => {
                self.leave_after(held, ghost);
                judge(held, verdict, ghost)
            }
            Err(failure) => self.release_later(held, covered, failure),
        }
    }

    /// Once, and once more where a connection broke or turned out to be a replica's.
    fn release_now(&self, held: &Held) -> Performed {
        let deadline = Moment::now().after(held.io);
        let order = Order::Release { key: &held.key, token: &held.token };
        let first = self.nodes.perform(&order, held.io);
        match &first.verdict {
            Err(failure) if failure.wants_fresh_connection() && Moment::now() < deadline => {
                let again = self.nodes.perform(&order, Moment::now().until(deadline));
                Performed { ghost: again.ghost || first.ghost, ..again }
            }
            _ => first,
        }
    }

    fn release_later(&self, held: &Held, covered: bool, failure: Failure) -> Ended {
        self.watchdog.run(Errand::release(held));
        if covered { Ended::Later(failure) } else { Ended::Lost(held.loss().unwrap_or(LostReason::Expired)) }
    }

    /// An attempt of this hold's acquisition may still be executed: it is taken back when it cannot be. So is
    /// what stands on a node that did not answer the release, if it is one of several.
    fn leave_after(&self, held: &Held, ghost: bool) {
        let remains = (ghost && self.nodes.votes()).then_some(NotAfter::NONE);
        if let Some(not_after) = held.ghost.max(remains) {
            self.watchdog.run(Errand::leave(&held.key, &held.token, not_after, held.terms.ttl, held.io));
        }
    }
}

/// What the answer says of the section: was it covered to its end?
fn judge(held: &Held, verdict: Verdict, maybe_before: bool) -> Ended {
    match verdict {
        // What Redis said before stands, though a late attempt may have taken the lock again.
        Verdict::Ours => match held.loss() {
            Some(loss @ (LostReason::Deleted | LostReason::Taken)) => Ended::Lost(loss),
            _ => Ended::Covered,
        },
        // An earlier copy of this release was executed, and its answer lost.
        _ if maybe_before && held.is_valid() => Ended::Covered,
        Verdict::Gone => {
            Ended::Lost(held.loss().filter(|&loss| loss != LostReason::Taken).unwrap_or(LostReason::Deleted))
        }
        _ => Ended::Lost(LostReason::Taken),
    }
}
