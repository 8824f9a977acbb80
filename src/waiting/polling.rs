//! Waiting for a lock that has no queue, neither in this process nor in Redis: attempt, pause, attempt …
//! and one last attempt at the deadline. No connection is held while it sleeps.
//!
//! What [`acquire`](super::acquire) does for a lock with a gate, without the gate.

use std::time::Duration;

use super::asker::{Manner, Refusal};
use super::backoff::Pauses;
use super::head::{AFTER_EXPIRY, random};
use super::interrupt::Interrupt;
use super::saying;
use crate::clock::Moment;
use crate::server::Failure;
use crate::sync::park_until;

/// What an attempt found: the lock, or how long it is another's.
pub(crate) type Polled<T> = Result<Result<T, Option<Duration>>, Failure>;

/// One wait.
pub(crate) struct Poll<'a> {
    pub(crate) name: &'a str,
    pub(crate) key: &'a str,
    pub(crate) manner: &'a Manner,
    pub(crate) deadline: Option<Moment>,
}

/// What was logged of it already.
#[derive(Default)]
struct Said {
    endless: bool,
    failing: bool,
}

enum Slept {
    Well,
    Deadline,
    Interrupted,
}

impl Poll<'_> {
    /// Until it has the lock, or until the deadline; without one for as long as Redis answers.
    pub(crate) fn run<T>(&self, mut attempt: impl FnMut() -> Polled<T>) -> Result<T, Refusal> {
        if self.is_interrupted() {
            return Err(Refusal::Interrupted);
        }
        let (mut pauses, mut said) = (Pauses::new(self.manner.backoff), Said::default());
        let mut useful = Moment::now();
        let mut last = self.deadline.is_some_and(|deadline| deadline <= useful);
        loop {
            let (remaining, verdict) = match attempt() {
                Ok(Ok(won)) => return Ok(won),
                Ok(Err(remaining)) => {
                    useful = Moment::now();
                    self.say_endless(remaining, &mut said);
                    (remaining, Refusal::Taken)
                }
                Err(failure) if failure.is_transient() => {
                    let silent = useful.until(Moment::now());
                    if self.deadline.is_none() && silent >= self.manner.unreachable_after {
                        return Err(Refusal::Silent(silent, failure));
                    }
                    self.say_failing(&failure, &mut said);
                    (None, Refusal::Failed(failure))
                }
                Err(failure) => return Err(Refusal::Failed(failure)),
            };
            if last || self.deadline.is_some_and(|deadline| deadline <= Moment::now()) {
                return Err(verdict);
            }
            let pause = pauses.next(random());
            match self.sleep(remaining.map_or(pause, |left| pause.min(left + AFTER_EXPIRY))) {
                Slept::Well => {}
                Slept::Deadline => last = true,
                Slept::Interrupted => return Err(Refusal::Interrupted),
            }
        }
    }

    fn sleep(&self, pause: Duration) -> Slept {
        if pause.is_zero() {
            std::thread::yield_now();
        }
        let _sleeper = self.manner.interrupt.as_ref().map(Interrupt::sleeper);
        let next = Moment::now().after(pause);
        loop {
            let now = Moment::now();
            if self.is_interrupted() {
                return Slept::Interrupted;
            }
            if now >= next {
                return Slept::Well;
            }
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                return Slept::Deadline;
            }
            // Woken by the interrupt, or by the clock.
            park_until(self.deadline.map_or(next, |deadline| next.min(deadline)));
        }
    }

    fn is_interrupted(&self) -> bool {
        self.manner.interrupt.as_ref().is_some_and(Interrupt::is_interrupted)
    }

    fn say_endless(&self, remaining: Option<Duration>, said: &mut Said) {
        if remaining.is_none() && !std::mem::replace(&mut said.endless, true) {
            saying::endless(self.key);
        }
    }

    fn say_failing(&self, failure: &Failure, said: &mut Said) {
        if !std::mem::replace(&mut said.failing, true) {
            saying::failing(self.name, failure, self.deadline, self.manner.unreachable_after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Class;
    use crate::waiting::Backoff;

    fn manner(unreachable_after: Duration) -> Manner {
        Manner { unreachable_after, backoff: Backoff::new(), interrupt: None, on_lost: None }
    }

    fn poll(manner: &Manner, deadline: Option<Moment>) -> Poll<'_> {
        Poll { name: "test", key: "k", manner, deadline }
    }

    #[test]
    fn a_time_of_zero_is_one_attempt() {
        let (manner, mut attempts) = (manner(Duration::MAX), 0);
        let refused: Result<(), _> = poll(&manner, Some(Moment::now())).run(|| {
            attempts += 1;
            Ok(Err(None))
        });
        assert!(matches!(refused, Err(Refusal::Taken)));
        assert_eq!(attempts, 1);
    }

    #[test]
    fn the_last_attempt_is_made_at_the_deadline_and_decides() {
        let manner = manner(Duration::ZERO);
        let deadline = Moment::now().after(Duration::from_millis(40));
        let won = poll(&manner, Some(deadline)).run(|| match Moment::now() {
            now if now < deadline => Err(Failure::new(Class::Unreachable)),
            now => Ok(Ok(now)),
        });
        assert!(won.is_ok_and(|now| now >= deadline), "failures are ridden out until then");
    }

    #[test]
    fn patience_runs_from_the_last_useful_answer() {
        let (manner, start) = (manner(Duration::from_millis(30)), Moment::now());
        let taken_until = start.after(Duration::from_millis(60));
        let refused: Result<(), _> = poll(&manner, None).run(|| match Moment::now() {
            now if now < taken_until => Ok(Err(Some(Duration::from_secs(1)))),
            _ => Err(Failure::new(Class::Unreachable)),
        });
        let Err(Refusal::Silent(silent, _)) = refused else { panic!("{refused:?}") };
        assert!(silent >= Duration::from_millis(30) && silent < start.until(Moment::now()), "{silent:?}");
    }

    #[test]
    fn what_cannot_pass_by_itself_ends_the_wait_at_once() {
        let (manner, mut attempts) = (manner(Duration::MAX), 0);
        let refused: Result<(), _> = poll(&manner, None).run(|| {
            attempts += 1;
            Err(Failure::new(Class::Denied))
        });
        assert!(matches!(refused, Err(Refusal::Failed(_))) && attempts == 1);
    }
}
