//! What a user's program may rely on at compile time.

use std::{
    fmt::Debug,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::{Arc, LazyLock},
    time::Duration,
};

use distlock::{
    Backoff, ClientOptions, DistLock, DistLockGuard, Error, ErrorKind, Holder, Interrupt, LockClient, LockManager,
    LockOptions, Renew, StampClock, StampUnit, TimestampLock, TimestampLockGuard, TimestampOptions,
};

const BRIEF: LockOptions = LockOptions::new()
    .ttl(Duration::from_secs(5))
    .renew(Renew::AtMost(Duration::from_secs(60)))
    .unreachable_after(Duration::ZERO)
    .backoff(Backoff::new().spins(0).first_pause(Duration::from_millis(5)).cap(Duration::from_millis(5)));

static REDIS: LazyLock<LockClient> = LazyLock::new(|| LockClient::open("redis://127.0.0.1:1/").expect("an address"));

fn handle<T: Clone + Send + Sync + Debug + UnwindSafe + RefUnwindSafe + 'static>() {}
fn guard<T: Send + Sync + Debug + UnwindSafe + RefUnwindSafe + 'static>() {}
fn value<T: Copy + Eq + Debug + Send + Sync + 'static>() {}

#[test]
fn handles_and_guards_can_be_shared_moved_cloned_and_printed() {
    handle::<LockClient>();
    handle::<DistLock>();
    handle::<LockManager>();
    handle::<TimestampLock>();
    handle::<Interrupt>();
    handle::<Holder>();
    guard::<DistLockGuard>();
    guard::<TimestampLockGuard>();
    value::<ErrorKind>();
    value::<Renew>();
    value::<Backoff>();
    value::<StampClock>();
    value::<StampUnit>();
    fn option<T: Clone + Debug + Default + Send + Sync + 'static>() {}
    option::<LockOptions>();
    option::<ClientOptions>();
    option::<TimestampOptions>();
}

#[test]
fn a_lock_and_an_error_are_a_word_each() {
    assert_eq!(size_of::<DistLock>(), size_of::<usize>());
    assert_eq!(size_of::<Error>(), size_of::<usize>());
}

#[test]
fn options_are_constants_and_references_to_a_client_of_any_kind_will_do() {
    let shared = Arc::new(REDIS.clone());
    let lock = DistLock::with_options(&REDIS, "report", &BRIEF).unwrap();
    for lock in [lock, DistLock::new(&shared, String::from("report")), DistLock::new(&REDIS, "report")] {
        assert_eq!(lock.key(), "report");
        assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unreachable);
    }
}

#[test]
fn the_crates_that_its_signatures_name_are_exported() {
    let client: distlock::redis::Client = distlock::redis::Client::open("redis://127.0.0.1:1/").unwrap();
    let pool: distlock::r2d2::Pool<_> = distlock::r2d2::Pool::builder().max_size(1).build_unchecked(client);
    assert_eq!(DistLock::new(&LockClient::from_pool(pool), "k").key(), "k");
}

#[test]
fn an_error_works_with_the_question_mark_and_prints_its_chain() {
    fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        DistLock::new(&REDIS, "k").try_lock()?.unlock()?;
        Ok(())
    }
    let text = format!("{:?}", main().unwrap_err());
    assert!(text.contains("cannot acquire lock \"k\"") && text.contains("refused"), "{text}");
}
