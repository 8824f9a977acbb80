//! The fake in the place of a server: the few commands with which laws act past the lock under test, done
//! by other clients of the same fake.

use std::time::Duration;

use distlock::{DistLock, LockClient, LockOptions, Renew, redis::Value, testing::FakeRedis};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Begins the label of what a law has SET: what stands behind it is the value.
const SET: &str = "set:";

pub(crate) struct OnFake(FakeRedis);

impl OnFake {
    pub(crate) fn new() -> OnFake {
        OnFake(distlock::testing::client().1)
    }

    pub(crate) fn client(&self) -> LockClient {
        self.0.client()
    }

    pub(crate) fn ask(&self, parts: &[&str]) -> Value {
        match *parts {
            ["GET", key] => self.value(key).map_or(Value::Nil, |value| Value::BulkString(value.into_bytes())),
            ["PTTL", key] => Value::Int(self.pttl(key)),
            ["DEL", key] => Value::Int(self.delete(key).into()),
            ["SET", key, value, ref options @ ..] => self.set(key, value, options),
            // The compare-and-delete of foreign clients.
            ["EVAL", _, "1", key, value] => {
                Value::Int((self.value(key).as_deref() == Some(value) && self.delete(key)).into())
            }
            _ => panic!("{parts:?} cannot be asked of a fake: a law that needs it runs on every server"),
        }
    }

    fn value(&self, key: &str) -> Option<String> {
        let holder = self.lock(key).holder().unwrap()?;
        let set = holder.label.as_deref().and_then(|label| label.strip_prefix(SET));
        Some(set.map_or(holder.token, str::to_owned))
    }

    fn pttl(&self, key: &str) -> i64 {
        let holder = self.lock(key).holder().unwrap();
        holder.map_or(-2, |holder| i64::try_from(holder.remaining.expect("a ttl").as_millis()).expect("a year"))
    }

    /// As an operator: its holder finds out by itself.
    fn delete(&self, key: &str) -> bool {
        self.lock(key).force_unlock().unwrap()
    }

    /// A hold that nobody renews; a year stands for "for ever".
    fn set(&self, key: &str, value: &str, options: &[&str]) -> Value {
        let px = options.iter().skip_while(|option| **option != "PX").nth(1);
        let ttl = px.map_or(YEAR, |px| Duration::from_millis(px.parse().expect("milliseconds")).min(YEAR));
        let terms = LockOptions::new().ttl(ttl).renew(Renew::Never).label(format!("{SET}{value}"));
        let lock = DistLock::with_options(&self.client(), key, &terms).unwrap();
        if !options.contains(&"NX") {
            lock.force_unlock().unwrap();
        }
        match lock.try_lock() {
            Ok(guard) => {
                guard.into_token().unwrap();
                Value::Okay
            }
            Err(e) => {
                assert!(e.is_taken(), "{e:?}");
                Value::Nil
            }
        }
    }

    fn lock(&self, key: &str) -> DistLock {
        DistLock::new(&self.client(), key)
    }
}
