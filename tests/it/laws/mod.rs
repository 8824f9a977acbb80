//! What a lock promises, each promise written once and run on every way of building a client.
//! (`refusals` is about addresses and rights, which are no matter of the way.)

mod by_token;
mod company;
mod exclusion;
mod fences;
mod foreign_holders;
mod giving_away;
mod guarded;
mod lease;
mod losses;
mod names;
mod operators;
mod passing;
mod refusals;
mod stamp_flaws;
mod stamps;
mod threads;
mod waiting;

use std::time::{Duration, Instant};

use distlock::{DistLockGuard, Error, ErrorKind, LockOptions, Renew};

/// What a noisy machine may add to a time.
const BOUND: Duration = Duration::from_millis(700);
const LONG: Duration = Duration::from_secs(20);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// One lease of this length.
const fn once(ttl: Duration) -> LockOptions {
    LockOptions::new().ttl(ttl).renew(Renew::Never)
}

#[track_caller]
fn assert_kind<T>(outcome: distlock::Result<T>, kind: ErrorKind) -> Error {
    let error = outcome.err().unwrap_or_else(|| panic!("no error, {kind:?} expected"));
    assert_eq!(error.kind(), kind, "{error:?}");
    error
}

#[track_caller]
fn assert_taken(outcome: distlock::Result<DistLockGuard>) {
    assert_kind(outcome, ErrorKind::Taken);
}

/// The call ends in at least `least` and within the bound after it.
#[track_caller]
fn takes<T>(least: Duration, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = call();
    let took = start.elapsed();
    assert!(took >= least, "it took {took:?}, less than {least:?}");
    assert!(took < least + BOUND, "it took {took:?}, much more than {least:?}");
    outcome
}

/// Waits until the guard knows by its clock that it is over.
fn outlive(guard: &DistLockGuard) {
    assert!(guard.wait_lost_for(LONG), "the lease ends");
}
