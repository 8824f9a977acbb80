//! Stamps: the values of the timestamp protocol, the end of a hold as a number. Pure: every time comes in
//! as an argument.

/// In what a [`TimestampLock`](crate::TimestampLock) counts the time since 1970. All who share a key must
/// use the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum StampUnit {
    /// Whole milliseconds. This is the default.
    #[default]
    Milliseconds,
    /// Whole seconds. A hold then blocks others for up to a second longer than its ttl.
    Seconds,
}

/// By which clock a [`TimestampLock`](crate::TimestampLock) writes its stamps, and judges those of others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum StampClock {
    /// The Redis server's, which all who use it share: a machine whose clock is wrong takes nothing from
    /// them. This is the default.
    #[default]
    Server,
    /// This machine's, as old clients do. For a fleet whose clocks agree with each other and not with the
    /// server's.
    Client,
}

/// How many processes the low digits of a stamp in milliseconds can tell apart.
pub(crate) const DIGITS: u64 = 1000;

impl StampUnit {
    /// How many milliseconds it has.
    pub(crate) fn millis(self) -> u64 {
        match self {
            StampUnit::Milliseconds => 1,
            StampUnit::Seconds => 1000,
        }
    }

    /// The stamp of a hold that begins at `now` (ms since 1970) and lasts for at least `ttl` ms: with
    /// `digits`, which seconds have no room for, the first that ends with them.
    pub(crate) fn stamp(self, now: u64, ttl: u64, digits: Option<u64>) -> u64 {
        let end = now.saturating_add(ttl);
        match (self, digits) {
            (StampUnit::Seconds, _) => end.div_ceil(1000),
            (StampUnit::Milliseconds, None) => end,
            (StampUnit::Milliseconds, Some(digits)) => {
                end.saturating_add((digits % DIGITS + DIGITS - end % DIGITS) % DIGITS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stamp_is_the_end_of_the_hold_in_its_unit() {
        let (now, ttl) = (1_764_547_200_123, 30_000);
        assert_eq!(StampUnit::Milliseconds.stamp(now, ttl, None), 1_764_547_230_123);
        assert_eq!(StampUnit::Milliseconds.stamp(now, ttl, Some(123)), 1_764_547_230_123);
        assert_eq!(StampUnit::Milliseconds.stamp(now, ttl, Some(122)), 1_764_547_231_122);
        assert_eq!(StampUnit::Seconds.stamp(now, ttl, None), 1_764_547_231);
        assert_eq!(StampUnit::Seconds.stamp(now, ttl, Some(7)), 1_764_547_231);
        assert_eq!(StampUnit::Seconds.stamp(1_764_547_200_000, ttl, None), 1_764_547_230);
    }

    proptest! {
        #[test]
        fn processes_with_digits_of_their_own_never_write_equal_stamps(
            mine in (0u64..1 << 52, 1u64..1 << 40, 0u64..500),
            yours in (0u64..1 << 52, 1u64..1 << 40, 500u64..1000),
        ) {
            let stamp = |(now, ttl, digits)| StampUnit::Milliseconds.stamp(now, ttl, Some(digits));
            prop_assert_ne!(stamp(mine), stamp(yours));
        }

        #[test]
        fn no_stamp_ends_before_the_ttl_or_a_second_after_it(now in 0u64..1 << 52, ttl in 1u64..1 << 40, digits in 0u64..1000) {
            for (unit, digits) in [(StampUnit::Milliseconds, None), (StampUnit::Milliseconds, Some(digits)), (StampUnit::Seconds, None)] {
                let end = unit.stamp(now, ttl, digits) * unit.millis();
                prop_assert!(end >= now + ttl && end < now + ttl + 1000, "{unit:?} {digits:?}");
            }
        }
    }
}
