//! The next pause between attempts. Pure: the random number comes in as an argument.

use std::time::Duration;

/// How a waiting thread paces its attempts: a few close together, then pauses that grow with
/// decorrelated jitter up to a cap.
///
/// Each pause is drawn between the first pause and three times the last one, so that waiters who
/// started together do not stay together. Whatever this says, no pause is longer than the holder's
/// remaining ttl or the caller's deadline.
///
/// ```
/// use std::time::Duration;
/// use distlock::{Backoff, LockOptions};
///
/// const PATIENT: Backoff = Backoff::new().first_pause(Duration::from_millis(10)).cap(Duration::from_millis(200));
/// const OPTIONS: LockOptions = LockOptions::new().backoff(PATIENT);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    pub(crate) spins: u32,
    pub(crate) first_pause: Duration,
    pub(crate) cap: Duration,
}

impl Backoff {
    /// 3 spins, a first pause of 2 ms, a cap of 50 ms.
    ///
    /// ```
    /// use distlock::Backoff;
    ///
    /// assert_eq!(Backoff::new(), Backoff::new().spins(3));
    /// assert_eq!(Backoff::new(), Backoff::default());
    /// ```
    pub const fn new() -> Backoff {
        Backoff { spins: 3, first_pause: Duration::from_millis(2), cap: Duration::from_millis(50) }
    }

    /// How many attempts follow the first one without a pause, the thread only yielding its processor.
    /// Defaults to 3; at most 1000.
    ///
    /// ```
    /// # use distlock::Backoff;
    /// const PATIENT: Backoff = Backoff::new().spins(0);
    /// ```
    #[must_use]
    pub const fn spins(mut self, n: u32) -> Backoff {
        self.spins = n;
        self
    }

    /// The shortest pause after the spins. Defaults to 2 ms; from 100 µs to the cap.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use distlock::Backoff;
    /// const PATIENT: Backoff = Backoff::new().first_pause(Duration::from_millis(10));
    /// ```
    #[must_use]
    pub const fn first_pause(mut self, d: Duration) -> Backoff {
        self.first_pause = d;
        self
    }

    /// The longest pause, and so how late a release can be noticed. Defaults to 50 ms; at most 1 minute.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use distlock::Backoff;
    /// const PATIENT: Backoff = Backoff::new().cap(Duration::from_millis(200));
    /// ```
    #[must_use]
    pub const fn cap(mut self, d: Duration) -> Backoff {
        self.cap = d;
        self
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new()
    }
}

/// The pauses of one acquisition, over all threads that inherit it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    config: Backoff,
    spins: u32,
    last: Duration,
}

impl Pauses {
    pub(crate) fn new(config: Backoff) -> Pauses {
        Pauses { config, spins: 0, last: Duration::ZERO }
    }

    pub(crate) fn are_of(&self, config: Backoff) -> bool {
        self.config == config
    }

    /// From the first pause on again.
    pub(crate) fn restart(&mut self) {
        self.last = Duration::ZERO;
    }

    /// The next pause; `random` is any number. Zero means: yield and try again, which happens only so
    /// often.
    pub(crate) fn next(&mut self, random: u64) -> Duration {
        if self.spins < self.config.spins {
            self.spins += 1;
            return Duration::ZERO;
        }
        let least = self.config.first_pause;
        let most = (self.last * 3).clamp(least, self.config.cap.max(least));
        let span = (most - least).as_nanos() as u64;
        self.last = least + Duration::from_nanos(if span == 0 { 0 } else { random % (span + 1) });
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_first_attempts_are_close_together_then_pauses_grow_to_the_cap() {
        let mut pauses = Pauses::new(Backoff::new());
        let longest: Vec<_> = (0..12).map(|_| pauses.next(u64::MAX / 3 * 3 - 1)).collect();
        assert_eq!(longest[..3], [Duration::ZERO; 3]);
        assert!(longest[3] == ms(2) && longest[3..].iter().all(|p| (ms(2)..=ms(50)).contains(p)), "{longest:?}");
    }

    #[test]
    fn no_spins_means_that_every_attempt_is_paced() {
        let mut pauses = Pauses::new(Backoff::new().spins(0));
        assert_eq!(pauses.next(7), ms(2));
    }

    #[test]
    fn equal_bounds_give_equal_pauses() {
        let mut pauses = Pauses::new(Backoff::new().spins(0).first_pause(ms(5)).cap(ms(5)));
        assert!((0..10).all(|n| pauses.next(n * 12_345) == ms(5)));
    }

    proptest! {
        #[test]
        fn a_pause_is_never_zero_after_the_spins_and_never_above_the_cap(
            randoms in prop::collection::vec(any::<u64>(), 1..50),
            first in 1u64..100,
            more in 0u64..1000,
        ) {
            let config = Backoff::new().spins(0).first_pause(ms(first)).cap(ms(first + more));
            let mut pauses = Pauses::new(config);
            let mut last = Duration::ZERO;
            for random in randoms {
                let pause = pauses.next(random);
                prop_assert!(pause >= config.first_pause && pause <= config.cap);
                prop_assert!(pause <= (last * 3).max(config.first_pause));
                last = pause;
            }
        }
    }
}
