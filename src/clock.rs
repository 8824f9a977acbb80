//! Time that goes on while the machine sleeps.
//!
//! A lease runs out on the server whether or not this machine is awake, so everything that bounds a
//! lease or a wait is a [`Moment`]: nanoseconds of `CLOCK_BOOTTIME` on Linux, of
//! [`std::time::Instant`] elsewhere. Nothing here is a wall clock, and moments of two machines are
//! never compared.

use std::time::Duration;

/// A point of local time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before everything: a lease until then is over.
    pub(crate) const PAST: Moment = Moment(0);
    /// Later than any other: a wait until then has no end.
    pub(crate) const NEVER: Moment = Moment(u64::MAX);

    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Moment {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment((t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Moment {
        use std::{sync::LazyLock, time::Instant};
        // One second before the first call, so that `PAST` is always past.
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        Moment(nanos(START.elapsed()).saturating_add(1_000_000_000))
    }

    /// This moment and `d`; `NEVER` where that is out of range, so that no deadline overflows.
    pub(crate) fn after(self, d: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(d)))
    }

    /// From this moment to `later`, zero if that is not later.
    pub(crate) fn until(self, later: Moment) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }

    /// For an atomic.
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Moment {
        Moment(bits)
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_deadlines_do_not_overflow() {
        assert_eq!(Moment::now().after(Duration::MAX), Moment::NEVER);
        assert_eq!(Moment::NEVER.after(Duration::from_secs(1)), Moment::NEVER);
    }

    #[test]
    fn time_that_is_over_is_zero() {
        let now = Moment::now();
        assert_eq!(now.until(Moment::PAST), Duration::ZERO);
        assert_eq!(now.until(now.after(Duration::from_secs(3))), Duration::from_secs(3));
    }

    #[test]
    fn the_clock_does_not_go_back() {
        let earlier = Moment::now();
        assert!(earlier > Moment::PAST);
        assert!(Moment::now() >= earlier);
    }
}
