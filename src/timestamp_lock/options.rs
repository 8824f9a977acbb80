//! Options of a timestamp lock: plain values, checked when a lock is made with them.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::keeping::lease;
use crate::nodes::Stamping;
use crate::options::{check_backoff, check_ttl};
use crate::stamp::{DIGITS, StampClock, StampUnit};
use crate::waiting::{Backoff, Interrupt, Manner};

/// How a [`TimestampLock`](crate::TimestampLock) writes its stamps, and waits. A plain value: one for many
/// keys.
///
/// The defaults are what an old fleet does, but for what it cannot notice: the server's clock, and a ttl on
/// the key.
///
/// ```
/// use std::time::Duration;
/// use distlock::{StampUnit, TimestampOptions};
///
/// let options = TimestampOptions::new().ttl(Duration::from_secs(10)).unit(StampUnit::Seconds);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct TimestampOptions {
    ttl: Duration,
    unit: StampUnit,
    clock: StampClock,
    digits: Option<u16>,
    expires: bool,
    unreachable_after: Duration,
    backoff: Backoff,
    interrupt: Option<Interrupt>,
}

/// Options that were found good.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) ttl: Duration,
    pub(super) how: Stamping,
    pub(super) manner: Manner,
}

impl Default for Checked {
    /// The defaults are within their limits, which a test checks.
    fn default() -> Checked {
        TimestampOptions::new().unchecked()
    }
}

impl TimestampOptions {
    /// The defaults: 30 s, in milliseconds, by the server's clock, on a key with a ttl.
    #[must_use]
    pub const fn new() -> TimestampOptions {
        TimestampOptions {
            ttl: Duration::from_secs(30),
            unit: StampUnit::Milliseconds,
            clock: StampClock::Server,
            digits: None,
            expires: true,
            unreachable_after: Duration::from_secs(30),
            backoff: Backoff::new(),
            interrupt: None,
        }
    }

    /// How long a hold lasts at most: it is not renewed. Defaults to 30 s; from 10 ms to a year.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use distlock::TimestampOptions;
    /// let options = TimestampOptions::new().ttl(Duration::from_secs(10));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn ttl(mut self, d: Duration) -> TimestampOptions {
        self.ttl = d;
        self
    }

    /// In what the stamps of this key count. Defaults to milliseconds.
    ///
    /// ```
    /// # use distlock::{StampUnit, TimestampOptions};
    /// let options = TimestampOptions::new().unit(StampUnit::Seconds);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn unit(mut self, u: StampUnit) -> TimestampOptions {
        self.unit = u;
        self
    }

    /// By which clock stamps are written and judged. Defaults to the server's.
    ///
    /// ```
    /// # use distlock::{StampClock, TimestampOptions};
    /// let options = TimestampOptions::new().clock(StampClock::Client);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn clock(mut self, c: StampClock) -> TimestampOptions {
        self.clock = c;
        self
    }

    /// The last three digits of every stamp that this process writes, 0 to 999. Defaults to none: a stamp is
    /// the time and the ttl.
    ///
    /// Processes with digits of their own never write equal stamps, whose releases would take one for the
    /// other. A stamp then ends up to a second after its ttl, which is how much longer a crashed holder
    /// blocks others. For milliseconds; seconds have no digits to spare.
    ///
    /// ```
    /// use distlock::TimestampOptions;
    ///
    /// const THIRD_WORKER: TimestampOptions = TimestampOptions::new().digits(3);
    /// ```
    #[must_use]
    pub const fn digits(mut self, n: u16) -> TimestampOptions {
        self.digits = Some(n);
        self
    }

    /// Leaves the key without a ttl, as old clients do: then what a crashed holder leaves stays until
    /// somebody takes it.
    ///
    /// By default Redis removes the key when its stamp is over. Who takes a lock with GETSET must then expect
    /// to find nothing; a client that cannot, though a release has the same effect, is what this is for.
    ///
    /// ```
    /// # use distlock::TimestampOptions;
    /// let options = TimestampOptions::new().keep_key();
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn keep_key(mut self) -> TimestampOptions {
        self.expires = false;
        self
    }

    /// As [`LockOptions::unreachable_after`](crate::LockOptions::unreachable_after). Defaults to 30 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use distlock::TimestampOptions;
    /// let options = TimestampOptions::new().unreachable_after(Duration::from_secs(5));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn unreachable_after(mut self, d: Duration) -> TimestampOptions {
        self.unreachable_after = d;
        self
    }

    /// How attempts are paced. Defaults to [`Backoff::new`]: 3 at once, then pauses of 2 to 50 ms.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use distlock::{Backoff, TimestampOptions};
    /// let options = TimestampOptions::new().backoff(Backoff::new().cap(Duration::from_millis(200)));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn backoff(mut self, b: Backoff) -> TimestampOptions {
        self.backoff = b;
        self
    }

    /// What ends waits from another thread. Defaults to nothing.
    ///
    /// ```
    /// # use distlock::{Interrupt, TimestampOptions};
    /// let options = TimestampOptions::new().interrupt(&Interrupt::new());
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn interrupt(mut self, i: &Interrupt) -> TimestampOptions {
        self.interrupt = Some(i.clone());
        self
    }

    pub(super) fn check(&self) -> Result<Checked> {
        check_ttl(self.ttl)?;
        check_backoff(self.backoff)?;
        match self.digits {
            Some(n) if u64::from(n) >= DIGITS => {
                Err(Error::invalid(format!("digits of {n}: 0 to {} are possible", DIGITS - 1)))
            }
            Some(_) if self.unit != StampUnit::Milliseconds => {
                Err(Error::invalid("digits: a stamp in seconds has none to spare".to_owned()))
            }
            _ => Ok(self.unchecked()),
        }
    }

    fn unchecked(&self) -> Checked {
        let &TimestampOptions { ttl, unit, clock, expires, unreachable_after, backoff, .. } = self;
        let digits = self.digits.map(u64::from);
        Checked {
            ttl,
            how: Stamping { ttl: lease::server_millis(ttl), unit, clock, digits, expires },
            manner: Manner { unreachable_after, backoff, interrupt: self.interrupt.clone(), on_lost: None },
        }
    }
}

impl Default for TimestampOptions {
    fn default() -> TimestampOptions {
        TimestampOptions::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_option_is_refused_with_its_value_and_the_limit() {
        let new = TimestampOptions::new;
        let table = [
            (new().ttl(Duration::ZERO), "ttl of 0ns: 10ms to 365 days are possible"),
            (new().backoff(Backoff::new().spins(1001)), "spins of 1001: 0 to 1000"),
            (new().digits(1000), "digits of 1000: 0 to 999"),
            (new().digits(1).unit(StampUnit::Seconds), "a stamp in seconds has none"),
        ];
        for (options, text) in table {
            let refusal = options.check().unwrap_err().to_string();
            assert!(refusal.contains(text), "{refusal:?} lacks {text:?}");
        }
    }

    #[test]
    fn the_defaults_and_the_limits_themselves_are_good() {
        for options in [TimestampOptions::new(), TimestampOptions::new().digits(0), TimestampOptions::new().digits(999)]
        {
            assert!(options.check().is_ok(), "{options:?}");
        }
    }
}
