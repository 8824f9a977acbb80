//! How long a lease is good, and when it is due again. Pure: every time comes in as an argument.

use std::time::Duration;

use crate::clock::Moment;

/// How long a held lock is kept. For [`LockOptions::renew`](crate::LockOptions::renew).
///
/// The key in Redis always has a ttl, so that a crashed holder blocks others for no longer than that.
/// Renewal is what makes the ttl independent of how long the work takes. What is not renewed in time is
/// [lost](crate::guide::leases).
///
/// ```
/// use std::time::Duration;
/// use distlock::{LockOptions, Renew};
///
/// const BATCH: LockOptions = LockOptions::new().renew(Renew::AtMost(Duration::from_secs(600)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Renew {
    /// Renewed every third of the ttl while the guard lives, like a `Mutex`, which has no time limit.
    /// This is the default.
    #[default]
    WhileHeld,
    /// Renewed while the guard lives, but the lease never reaches past this time after the
    /// acquisition: then the guard is lost like any expired one. For work that may hang. A time below
    /// the ttl shortens the first lease, too. At least 10 ms.
    AtMost(Duration),
    /// One ttl, counted from the acquisition; [`extend`](crate::DistLockGuard::extend) prolongs it.
    Never,
}

/// The terms on which a lock is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) renew: Renew,
    /// How often it may be passed from thread to thread.
    pub(crate) passes: u8,
}

impl Terms {
    /// What must be left of a lease that is passed on. Not a third of a long one: a lease that another
    /// process granted is short until its first renewal.
    pub(crate) fn least_passed(&self) -> Duration {
        (self.ttl / 3).min(Duration::from_millis(250))
    }

    /// Is the lease renewed by itself?
    pub(crate) fn renews(&self) -> bool {
        self.renew != Renew::Never
    }

    /// The ttl with which the lock is acquired.
    pub(crate) fn first_ttl(&self) -> Duration {
        match self.renew {
            Renew::AtMost(limit) => self.ttl.min(limit),
            Renew::WhileHeld | Renew::Never => self.ttl,
        }
    }

    /// The end of all leases of a hold that began at `start`.
    pub(crate) fn end(&self, start: Moment) -> Moment {
        match self.renew {
            Renew::AtMost(limit) => start.after(limit),
            Renew::WhileHeld | Renew::Never => Moment::NEVER,
        }
    }

    /// When a lease that was asked for at `sent` is to be renewed.
    pub(crate) fn due(&self, sent: Moment) -> Option<Moment> {
        (self.renew != Renew::Never).then(|| sent.after(self.first_ttl() / 3))
    }

    /// The ttl of a renewal that is sent now and must not reach past `end`; `None` if it brings nothing.
    pub(crate) fn next_ttl(&self, now: Moment, valid: Moment, end: Moment) -> Option<Duration> {
        let ttl = self.ttl.min(now.until(end));
        let whole = ttl == self.ttl;
        // Near its end all that a later call wins is less drift, which is not worth it.
        (whole || (ttl > drift(ttl) && valid_until(now, ttl) > valid.after(drift(ttl)))).then_some(ttl)
    }

    /// The pause before a renewal without an answer is tried again, after so many failures.
    pub(crate) fn retry_pause(&self, failures: u32) -> Duration {
        let least = (self.ttl / 64).max(Duration::from_millis(2));
        (least * (1 << failures.min(3))).min(self.ttl / 8)
    }
}

/// What clocks that do not run alike may take from a lease: 1 % and 2 ms.
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// The end of a lease that was asked for at `sent`: counted from before the send, less the drift.
pub(crate) fn valid_until(sent: Moment, ttl: Duration) -> Moment {
    sent.after(ttl.saturating_sub(drift(ttl)))
}

/// The ttl whose lease is valid for `at_least`.
pub(crate) fn ttl_for(at_least: Duration) -> Duration {
    // The inverse of what `valid_until` takes off, rounded up.
    at_least.saturating_add(at_least / 99).saturating_add(Duration::from_millis(3))
}

/// A ttl as the server gets it: whole milliseconds, rounded up, at least one.
pub(crate) fn server_millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn start() -> Moment {
        Moment::PAST.after(Duration::from_secs(1000))
    }

    fn terms(renew: Renew) -> Terms {
        Terms { ttl: ms(3000), renew, passes: 16 }
    }

    #[test]
    fn a_lease_counts_from_the_send_less_one_percent_and_two_milliseconds() {
        for (ttl, valid) in [(ms(30_000), ms(29_698)), (ms(1000), ms(988)), (ms(10), Duration::from_micros(7900))] {
            assert_eq!(start().until(valid_until(start(), ttl)), valid, "{ttl:?}");
        }
    }

    #[test]
    fn a_ttl_below_the_drift_is_over_at_once_and_never_wraps() {
        for ttl in [Duration::ZERO, ms(1), ms(2)] {
            assert_eq!(valid_until(start(), ttl), start(), "{ttl:?}");
        }
    }

    #[test]
    fn a_ttl_is_rounded_up_for_the_server_and_never_zero() {
        let table = [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (ms(1), 1),
            (Duration::from_micros(1001), 2),
            (ms(30_000), 30_000),
        ];
        for (ttl, millis) in table {
            assert_eq!(server_millis(ttl), millis, "{ttl:?}");
        }
        assert_eq!(server_millis(Duration::MAX), u64::MAX);
    }

    #[test]
    fn renewal_is_due_after_a_third_of_the_ttl_unless_it_is_off() {
        assert_eq!(terms(Renew::WhileHeld).due(start()), Some(start().after(ms(1000))));
        assert_eq!(terms(Renew::AtMost(ms(300))).due(start()), Some(start().after(ms(100))));
        assert_eq!(terms(Renew::Never).due(start()), None);
    }

    #[test]
    fn at_most_bounds_the_first_lease_and_all_others() {
        let short = terms(Renew::AtMost(ms(500)));
        assert_eq!(short.first_ttl(), ms(500));
        let long = terms(Renew::AtMost(ms(10_000)));
        assert_eq!(long.first_ttl(), ms(3000));
        let end = long.end(start());
        let late = start().after(ms(8000));
        let ttl = long.next_ttl(late, start().after(ms(9000)), end).unwrap();
        assert_eq!(ttl, ms(2000));
        assert!(valid_until(late, ttl) < end);
        // The lease reaches as far as it may: nothing more to ask for.
        assert_eq!(long.next_ttl(start().after(ms(8500)), valid_until(late, ttl), end), None);
        assert_eq!(long.next_ttl(end, start(), end), None);
    }

    #[test]
    fn retries_get_longer_and_stay_well_inside_the_lease() {
        let terms = terms(Renew::WhileHeld);
        let pauses: Vec<_> = (0..40).map(|failures| terms.retry_pause(failures)).collect();
        assert!(pauses.is_sorted() && pauses[0] > Duration::ZERO && pauses[39] <= terms.ttl / 8, "{pauses:?}");
    }

    proptest! {
        #[test]
        fn an_extension_is_valid_for_at_least_what_was_asked(micros in 0u64..31_536_000_000_000) {
            let asked = Duration::from_micros(micros);
            prop_assert!(start().until(valid_until(start(), ttl_for(asked))) >= asked);
        }
    }
}
