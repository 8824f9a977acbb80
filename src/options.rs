//! Options of a lock: plain values, checked in one place, when a lock is made with them.

use std::{sync::Arc, time::Duration};

use crate::error::{Error, Result};
use crate::keeping::{Lost, OnLost, Renew, Terms};
use crate::waiting::{Backoff, Interrupt, Manner, Shape};

/// How a lock is kept and waited for. A plain value: one for many keys, `const` where wanted.
///
/// Every option has a default; [`DistLock::new`](crate::DistLock::new) uses them all.
/// They are checked by [`DistLock::with_options`](crate::DistLock::with_options).
/// [Choosing](crate::guide::choosing) says which to change, and when.
///
/// ```
/// use std::time::Duration;
/// use distlock::{LockOptions, Renew};
///
/// const REPORT: LockOptions = LockOptions::new().ttl(Duration::from_secs(5)).renew(Renew::Never);
/// ```
#[derive(Clone, Debug)]
pub struct LockOptions {
    ttl: Duration,
    renew: Renew,
    unreachable_after: Duration,
    backoff: Backoff,
    label: Option<Arc<str>>,
    interrupt: Option<Interrupt>,
    on_lost: Option<OnLost>,
    local_passes: u8,
    wait: Wait,
}

/// How a lock waits for other processes. [`LockOptions::wait`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Wait {
    /// In the lock's queue, first come, first served: whoever releases makes the first waiter the owner and
    /// tells it. Where that cannot be had (a pool of the application's own, no right to subscribe, a proxy)
    /// waiters look by themselves. This is the default.
    #[default]
    InTurn,
    /// By [`Backoff`] alone, whoever is luckiest: for fleets that mix with clients of other libraries which
    /// always want the key, and would take it before those who queue.
    Spin,
}

/// Options that were found good.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) shape: Shape,
    pub(crate) manner: Manner,
}

impl Default for Checked {
    /// The defaults are within their limits, which a test checks.
    fn default() -> Checked {
        LockOptions::new().unchecked()
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
/// A year: of every lease.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const MOST_SPINS: u32 = 1000;
const LONGEST_LABEL: usize = 64;
/// A lease has a block of fences: one for the guard that got it from Redis, the others for these.
const MOST_PASSES: u8 = 16;

impl LockOptions {
    /// The defaults: a ttl of 30 s, renewed while held; a wait rides out 30 s of outage.
    ///
    /// ```
    /// use std::time::Duration;
    /// use distlock::LockOptions;
    ///
    /// const SHORT: LockOptions = LockOptions::new().ttl(Duration::from_secs(5));
    /// # let _ = SHORT;
    /// ```
    #[must_use]
    pub const fn new() -> LockOptions {
        LockOptions {
            ttl: Duration::from_secs(30),
            renew: Renew::WhileHeld,
            unreachable_after: Duration::from_secs(30),
            backoff: Backoff::new(),
            label: None,
            interrupt: None,
            on_lost: None,
            local_passes: MOST_PASSES,
            wait: Wait::InTurn,
        }
    }

    /// How long a crashed holder blocks others. Defaults to 30 s; from 10 ms to a year.
    ///
    /// Renewal makes it independent of how long the work takes. It is also how long Redis, or the process,
    /// may be away before [the lease is lost](crate::guide::leases): nearly two thirds of it at the least.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use distlock::LockOptions;
    /// let options = LockOptions::new().ttl(Duration::from_secs(60));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn ttl(mut self, d: Duration) -> LockOptions {
        self.ttl = d;
        self
    }

    /// Whether a held lock is renewed. Defaults to [`Renew::WhileHeld`], every third of the ttl.
    ///
    /// What is not renewed ends, and is then [lost](crate::guide::leases).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use distlock::{LockOptions, Renew};
    /// let options = LockOptions::new().renew(Renew::AtMost(Duration::from_secs(600)));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn renew(mut self, r: Renew) -> LockOptions {
        self.renew = r;
        self
    }

    /// How long [`lock`](crate::DistLock::lock) goes on while Redis gives no useful answer. Defaults to
    /// 30 s, so that a restart is ridden out.
    ///
    /// "Granted" and "taken" are useful, an error answer is not. `Duration::ZERO` fails at the first error,
    /// `Duration::MAX` never gives up. [`try_lock_for`](crate::DistLock::try_lock_for) has its own deadline
    /// and does not look at this.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use distlock::LockOptions;
    /// let options = LockOptions::new().unreachable_after(Duration::from_secs(5));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn unreachable_after(mut self, d: Duration) -> LockOptions {
        self.unreachable_after = d;
        self
    }

    /// How attempts are paced while somebody else holds. Defaults to [`Backoff::new`]: 3 at once, then
    /// pauses of 2 to 50 ms.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use distlock::{Backoff, LockOptions};
    /// let options = LockOptions::new().backoff(Backoff::new().cap(Duration::from_millis(200)));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub const fn backoff(mut self, b: Backoff) -> LockOptions {
        self.backoff = b;
        self
    }

    /// How to wait for other processes. Defaults to [`Wait::InTurn`].
    ///
    /// ```
    /// use distlock::{LockOptions, Wait};
    ///
    /// const AMONG_STRANGERS: LockOptions = LockOptions::new().wait(Wait::Spin);
    /// # let _ = AMONG_STRANGERS;
    /// ```
    #[must_use]
    pub const fn wait(mut self, w: Wait) -> LockOptions {
        self.wait = w;
        self
    }

    /// How often a lease is passed from thread to thread of this process without asking Redis, before
    /// other processes get their turn; each pass is a guard with a fence of its own. It is passed on to
    /// whoever waits longest, for at most 50 ms since it was taken from Redis, and while a third of the
    /// ttl, or 250 ms, is left of it; never with [`Renew::Never`]. Defaults to 16, which is the most; 0
    /// turns it off.
    ///
    /// ```
    /// use distlock::LockOptions;
    ///
    /// // Strictly in turn over all processes, whose threads then pay the way to Redis each time.
    /// const ALL_ALIKE: LockOptions = LockOptions::new().local_passes(0);
    /// # let _ = ALL_ALIKE;
    /// ```
    #[must_use]
    pub const fn local_passes(mut self, n: u8) -> LockOptions {
        self.local_passes = n;
        self
    }

    /// Who I am, readable in the value of the key: 1 to 64 visible ASCII characters. Defaults to none.
    ///
    /// [`Holder::label`](crate::Holder) shows it, and so does `redis-cli GET`.
    ///
    /// ```
    /// # use distlock::LockOptions;
    /// let options = LockOptions::new().label("web-1");
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn label(mut self, s: impl AsRef<str>) -> LockOptions {
        self.label = Some(s.as_ref().into());
        self
    }

    /// What ends waits from another thread. Defaults to nothing.
    ///
    /// ```
    /// # use distlock::{Interrupt, LockOptions};
    /// let shutdown = Interrupt::new();
    /// let options = LockOptions::new().interrupt(&shutdown);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn interrupt(mut self, i: &Interrupt) -> LockOptions {
        self.interrupt = Some(i.clone());
        self
    }

    /// Called when a guard of this lock is [lost](crate::guide::leases), once a guard. Defaults to nothing.
    ///
    /// At the latest when the lease ends by the local clock, also while a renewal hangs.
    ///
    /// Callbacks of one client run one after another on a thread of their own, which does nothing else:
    /// a slow one delays other callbacks, one that panics is contained and logged. What `unlock` or
    /// Drop finds out by itself is not told here, but returned or logged.
    ///
    /// ```
    /// use distlock::LockOptions;
    ///
    /// let options = LockOptions::new().on_lost(|lost| {
    ///     eprintln!("{} was lost ({:?}), its fence was {}", lost.key, lost.reason, lost.fence);
    /// });
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn on_lost(mut self, f: impl Fn(&Lost) + Send + Sync + 'static) -> LockOptions {
        self.on_lost = Some(OnLost(Arc::new(f)));
        self
    }

    /// Finds every value within its limits, or says which is not.
    pub(crate) fn check(&self) -> Result<Checked> {
        check_ttl(self.ttl)?;
        if let Renew::AtMost(limit) = self.renew {
            between("longest hold (Renew::AtMost)", limit, SHORTEST, LONGEST_TTL)?;
        }
        check_backoff(self.backoff)?;
        if let Some(label) = &self.label {
            check_label(label)?;
        }
        if self.local_passes > MOST_PASSES {
            let n = self.local_passes;
            return Err(Error::invalid(format!("local_passes of {n}: 0 to {MOST_PASSES} are possible")));
        }
        Ok(self.unchecked())
    }

    fn unchecked(&self) -> Checked {
        let terms = Terms { ttl: self.ttl, renew: self.renew, passes: self.local_passes };
        Checked {
            shape: Shape { terms, label: self.label.clone(), in_turn: self.wait == Wait::InTurn },
            manner: Manner {
                unreachable_after: self.unreachable_after,
                backoff: self.backoff,
                interrupt: self.interrupt.clone(),
                on_lost: self.on_lost.clone(),
            },
        }
    }
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions::new()
    }
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<()> {
    between("ttl", ttl, SHORTEST, LONGEST_TTL)
}

pub(crate) fn check_backoff(backoff: Backoff) -> Result<()> {
    let Backoff { spins, first_pause, cap } = backoff;
    if spins > MOST_SPINS {
        return Err(Error::invalid(format!("backoff: spins of {spins}: 0 to {MOST_SPINS} are possible")));
    }
    between("backoff: cap", cap, SHORTEST_PAUSE, MINUTE)?;
    between("backoff: first pause", first_pause, SHORTEST_PAUSE, cap)
}

/// An option's value must lie between two limits, both included.
pub(crate) fn between(what: &str, value: Duration, least: Duration, most: Duration) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let most = if most == LONGEST_TTL { "365 days".to_owned() } else { format!("{most:?}") };
    Err(Error::invalid(format!("{what} of {value:?}: {least:?} to {most} are possible")))
}

fn check_label(label: &str) -> Result<()> {
    let length = label.chars().count();
    if length == 0 || length > LONGEST_LABEL {
        return Err(Error::invalid(format!("label of {length} characters: 1 to {LONGEST_LABEL} are possible")));
    }
    match label.chars().find(|c| !c.is_ascii_graphic()) {
        Some(c) => Err(Error::invalid(format!("label {label:?} has {c:?}: visible ASCII characters are possible"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn refusal(options: &LockOptions) -> String {
        let error = options.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        error.to_string()
    }

    #[test]
    fn a_bad_option_is_refused_with_its_value_and_the_limit() {
        let new = LockOptions::new;
        let table = [
            (new().ttl(Duration::ZERO), "ttl of 0ns: 10ms to 365 days are possible"),
            (new().ttl(Duration::from_micros(9999)), "ttl of 9.999ms: 10ms to 365 days"),
            (new().ttl(LONGEST_TTL + Duration::from_nanos(1)), "s: 10ms to 365 days"),
            (new().renew(Renew::AtMost(Duration::ZERO)), "AtMost) of 0ns: 10ms to"),
            (new().renew(Renew::AtMost(Duration::MAX)), "to 365 days are possible"),
            (new().backoff(Backoff::new().spins(1001)), "spins of 1001: 0 to 1000"),
            (new().backoff(Backoff::new().first_pause(Duration::ZERO)), "first pause of 0ns: 100µs to"),
            (new().backoff(Backoff::new().cap(Duration::from_millis(1))), "first pause of 2ms: 100µs to 1ms"),
            (new().backoff(Backoff::new().cap(Duration::MAX)), "100µs to 60s"),
            (new().local_passes(17), "local_passes of 17: 0 to 16"),
            (new().label(""), "label of 0 characters"),
            (new().label("x".repeat(65)), "label of 65 characters"),
            (new().label("a b"), "has ' '"),
            (new().label("é"), "has 'é'"),
        ];
        for (options, text) in table {
            let refusal = refusal(&options);
            assert!(refusal.contains(text), "{refusal:?} lacks {text:?}");
        }
    }

    #[test]
    fn the_defaults_and_the_limits_themselves_are_good() {
        assert!(LockOptions::new().check().is_ok());
        for ttl in [SHORTEST, LONGEST_TTL] {
            let options = LockOptions::new().ttl(ttl).renew(Renew::AtMost(ttl)).label("~".repeat(64));
            assert!(options.check().is_ok(), "{ttl:?}");
        }
    }
}
