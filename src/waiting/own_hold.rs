//! A long wait behind a guard of this very client, which may be one of this very thread: it is said once a
//! wait, with what to do. The gate and the head, who see it, ask at each look; whoever gets the lock at
//! once pays nothing.

use std::{cell::Cell, time::Duration};

use log::warn;

use super::asker::Asker;
use crate::clock::Moment;
use crate::error::About;

/// Longer than most sections last.
#[cfg(not(test))]
const LONG: Duration = Duration::from_secs(60);
#[cfg(test)]
const LONG: Duration = Duration::from_millis(50);

pub(super) struct OwnHold {
    start: Moment,
    said: Cell<bool>,
}

impl OwnHold {
    /// Of a wait that began at `start`.
    pub(super) fn since(start: Moment) -> OwnHold {
        OwnHold { start, said: Cell::new(false) }
    }

    /// A look of the wait: is it a guard of this client that it waits for?
    pub(super) fn look(&self, asker: Asker<'_>, is_held: impl FnOnce() -> bool) {
        let waited = self.start.until(Moment::now());
        if waited < LONG || self.said.get() || !is_held() {
            return;
        }
        self.said.set(true);
        let about = About { key: &asker.local.key.text, client: &asker.keeper.name };
        warn!(
            "{about} is held by a guard of this process, waiting for {waited:.0?}: a thread that has the guard \
             itself waits for ever (drop it first; Renew::AtMost ends one that was leaked)"
        );
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::Mutex,
    };

    use crate::{DistLock, LockClient, LockOptions, testing};

    use super::*;

    /// What was logged; it panics where a key says so.
    struct Lines(Mutex<Vec<String>>);

    static LINES: Lines = Lines(Mutex::new(Vec::new()));

    impl log::Log for Lines {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            let line = record.args().to_string();
            self.0.lock().unwrap().push(line.clone());
            assert!(!line.contains("\"bomb\"") || !line.contains("this process"), "a logger that panics");
        }

        fn flush(&self) {}
    }

    fn said_of(key: &str) -> usize {
        let key = format!("lock {key:?} ");
        let lines = LINES.0.lock().unwrap();
        lines.iter().filter(|line| line.starts_with(&key) && line.contains("held by a guard of this process")).count()
    }

    fn client() -> LockClient {
        // The first one wins; there is one logger a process.
        let _ = log::set_logger(&LINES);
        log::set_max_level(log::LevelFilter::Warn);
        testing::client().0
    }

    /// Longer than long, and with looks to spare: sleeps in the gate end after a second.
    const WAIT: Duration = Duration::from_millis(2500);

    #[test]
    fn a_thread_that_waits_for_itself_is_told_once() {
        let lock = DistLock::new(&client(), "itself");
        let _guard = lock.lock().unwrap();
        assert!(lock.try_lock_for(WAIT).is_err_and(|e| e.is_taken()));
        assert_eq!(said_of("itself"), 1);
    }

    #[test]
    fn so_is_one_whose_two_locks_have_different_options() {
        let client = client();
        let _guard = DistLock::new(&client, "options").lock().unwrap();
        let other = LockOptions::new().ttl(Duration::from_secs(5));
        let other = DistLock::with_options(&client, "options", &other).unwrap();
        assert!(other.try_lock_for(WAIT).is_err_and(|e| e.is_taken()));
        assert_eq!(said_of("options"), 1);
    }

    #[test]
    fn a_short_wait_and_one_behind_another_client_are_not_spoken_of() {
        let (client, redis) = (client(), testing::client().1);
        let lock = DistLock::new(&client, "short");
        let guard = lock.lock().unwrap();
        assert!(lock.try_lock_for(LONG / 5).is_err());
        drop(guard);
        assert_eq!(said_of("short"), 0);
        let (here, there) = (redis.client(), redis.client());
        let _guard = DistLock::new(&there, "theirs").lock().unwrap();
        assert!(DistLock::new(&here, "theirs").try_lock_for(WAIT).is_err());
        assert_eq!(said_of("theirs"), 0);
    }

    #[test]
    fn a_logger_that_panics_leaves_the_queue_to_the_next() {
        let lock = DistLock::new(&client(), "bomb");
        let guard = lock.lock().unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| lock.try_lock_for(WAIT))).is_err(), "it was said");
        drop(guard);
        // Nobody who is not there any more is let in before me.
        lock.try_lock_for(LONG / 2).unwrap().unlock().unwrap();
    }
}
