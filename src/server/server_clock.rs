//! What time it is on the server, as far as this client can tell: the base of `not_after`.
//!
//! A call whose caller gave up can still be executed later. So an attempt carries the server time
//! after which it refuses itself, estimated from the last time that the server told and the local
//! time since then. The estimate is behind the server by the way of that answer, and by nothing else.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;

#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<Pair>>);

#[derive(Clone, Copy, Debug)]
struct Pair {
    micros: u64,
    received: Moment,
}

/// Later than every attempt may wait in a socket or a queue that its caller has left.
const SLACK: Duration = Duration::from_millis(50);

/// What was told so long ago is asked again, before its thousandth keeps given up attempts good for long.
const OLD: Duration = Duration::from_secs(60);

impl ServerClock {
    /// The server said that it is `micros`, which was received at that moment.
    pub(crate) fn set(&self, micros: u64, received: Moment) {
        *self.0.lock() = Some(Pair { micros, received });
    }

    /// The server time after which a call that starts at `now` and waits for `io` must not be executed;
    /// `None` while the server's clock is not known, or no longer.
    pub(crate) fn not_after(&self, now: Moment, io: Duration) -> Option<u64> {
        let pair = (*self.0.lock()).filter(|pair| pair.received.until(now) < OLD)?;
        Some(pair.not_after(now, io))
    }

    /// What time it is there, a moment behind; `None` while that is not known, or no longer.
    pub(crate) fn at(&self, now: Moment) -> Option<u64> {
        self.not_after(now, Duration::ZERO).map(|micros| micros - self::micros(SLACK))
    }

    /// The server time at a later moment at the latest, or 0 if it never told any.
    #[cfg(unix)]
    pub(crate) fn at_the_latest(&self, then: Moment) -> u64 {
        (*self.0.lock()).map_or(0, |pair| pair.not_after(then, Duration::ZERO))
    }

    /// How long from now until the server's clock has passed `not_after`.
    pub(crate) fn until(&self, not_after: u64) -> Duration {
        let Some(pair) = *self.0.lock() else { return Duration::ZERO };
        let now = pair.micros.saturating_add(micros(pair.received.until(Moment::now())));
        Duration::from_micros(not_after.saturating_sub(now))
    }
}

impl Pair {
    fn not_after(self, now: Moment, io: Duration) -> u64 {
        let age = micros(self.received.until(now));
        // 0.1 % of the age for clocks that do not run alike.
        self.micros.saturating_add(age).saturating_add(age / 1000).saturating_add(micros(io + SLACK))
    }
}

/// The `not_after` of an attempt that was refused as late twice: its clock was read from the refusal.
pub(crate) fn generous(micros_now: u64, io: Duration) -> u64 {
    micros_now.saturating_add(micros(2 * io + SLACK))
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IO: Duration = Duration::from_secs(1);

    #[test]
    fn an_attempt_is_good_for_its_timeout_a_slack_and_a_thousandth_of_the_pairs_age() {
        let received = Moment::now();
        let pair = Pair { micros: 1_000_000_000, received };
        let table = [(0, 1_001_050_000), (10, 1_011_060_000), (1000, 2_002_050_000)];
        for (age, not_after) in table {
            let now = received.after(Duration::from_secs(age));
            assert_eq!(pair.not_after(now, IO), not_after, "after {age} s");
        }
    }

    #[test]
    fn no_limit_is_made_up_while_the_servers_clock_is_unknown() {
        assert_eq!(ServerClock::default().not_after(Moment::now(), IO), None);
    }

    #[test]
    fn what_the_server_told_long_ago_is_asked_again() {
        let (clock, received) = (ServerClock::default(), Moment::now());
        clock.set(1_000_000_000, received);
        assert!(clock.not_after(received.after(OLD - Duration::from_millis(1)), IO).is_some());
        assert_eq!(clock.not_after(received.after(OLD), IO), None);
    }

    #[test]
    fn huge_clocks_do_not_overflow() {
        let clock = ServerClock::default();
        clock.set(u64::MAX, Moment::now());
        assert_eq!(clock.not_after(Moment::now(), IO), Some(u64::MAX));
        assert_eq!(generous(u64::MAX, IO), u64::MAX);
    }
}
