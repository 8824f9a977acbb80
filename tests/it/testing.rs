//! The fake, from the users' unit tests: taken, down, lost. That it locks as a server does, the laws check.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use distlock::{
    DistLock, DistLockGuard, ErrorKind, LockClient, LockOptions, LostReason, Renew,
    testing::{self, FakeRedis},
};

use crate::support::{SLACK, eventually};

const LONG: Duration = Duration::from_secs(20);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn kind_of<T>(outcome: distlock::Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|e| e.kind())
}

fn lock_with(client: &LockClient, options: &LockOptions) -> DistLock {
    DistLock::with_options(client, "k", options).unwrap()
}

#[test]
fn the_fake_says_that_it_is_a_fake() {
    let (client, fake) = testing::client();
    let lock = DistLock::new(&client, "orders:42");
    let guard = lock.lock().unwrap();
    assert_eq!(lock.try_lock().unwrap_err().to_string(), r#"lock "orders:42" on "fake" is taken"#);
    for text in [format!("{client:?}"), format!("{lock:?}"), format!("{guard:?}")] {
        assert!(text.contains(r#""fake""#), "{text}");
    }
    fake.set_down(true);
    let error = client.ping().unwrap_err();
    assert!(format!("{error:?}").contains(r#"redis "fake""#), "{error:?}");
    assert_eq!(format!("{fake:?}"), r#"FakeRedis { down: true, held: ["orders:42"], .. }"#);
}

/// Every call that asks.
fn all_calls(client: &LockClient, guard: &DistLockGuard) -> Vec<Option<ErrorKind>> {
    let lock = DistLock::new(client, "free");
    vec![
        kind_of(client.ping()),
        kind_of(lock.try_lock()),
        kind_of(lock.try_lock_for(ms(30))),
        kind_of(lock_with(client, &LockOptions::new().unreachable_after(Duration::ZERO)).lock()),
        kind_of(lock.is_locked()),
        kind_of(lock.holder()),
        kind_of(lock.force_unlock()),
        kind_of(lock.resume(guard.token())),
        kind_of(guard.extend(ms(10))),
    ]
}

#[test]
fn a_fake_that_is_down_is_unreachable_and_recovers() {
    let (client, fake) = testing::client();
    let other = fake.client();
    let guard = DistLock::new(&client, "mine").lock().unwrap();
    fake.set_down(true);
    for client in [&client, &other] {
        assert_eq!(all_calls(client, &guard), vec![Some(ErrorKind::Unreachable); 9]);
    }
    assert!(guard.is_valid(), "until its lease ends");
    fake.set_down(false);
    assert!(DistLock::new(&other, "mine").try_lock().unwrap_err().is_taken(), "it kept what it had");
    guard.extend(ms(10)).unwrap();
    guard.unlock().unwrap();
    DistLock::new(&other, "mine").try_lock().unwrap().unlock().unwrap();
}

#[test]
fn a_wait_rides_out_a_fake_that_comes_back() {
    let (client, fake) = testing::client();
    fake.set_down(true);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock_with(&client, &LockOptions::new()).lock().map(drop));
        thread::sleep(ms(30));
        assert!(!waiter.is_finished());
        fake.set_down(false);
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_lease_that_ends_while_the_fake_is_down_is_lost_by_the_clock() {
    let (client, fake) = testing::client();
    let lock = lock_with(&client, &LockOptions::new().ttl(ms(300)));
    let guard = lock.lock().unwrap();
    assert!(!guard.wait_lost_for(ms(600)), "it is renewed");
    fake.set_down(true);
    assert!(guard.wait_lost_for(LONG));
    assert_eq!(kind_of(guard.unlock()), Some(ErrorKind::Lost));
    fake.set_down(false);
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn what_could_not_be_released_is_released_when_the_fake_is_back() {
    let (client, fake) = testing::client();
    let guards = ["k", "o"].map(|key| DistLock::new(&client, key).lock().unwrap());
    fake.set_down(true);
    let [unlocked, dropped] = guards;
    unlocked.unlock().expect("it was covered");
    drop(dropped);
    assert!(format!("{fake:?}").contains(r#"["k", "o"]"#), "{fake:?}");
    fake.set_down(false);
    eventually(LONG, "nothing is held", || format!("{fake:?}").contains("held: []"));
}

#[test]
fn an_expired_fake_lock_is_lost_at_once_and_told() {
    for renew in [Renew::WhileHeld, Renew::AtMost(LONG), Renew::Never] {
        let (client, fake) = testing::client();
        let (tell, told) = mpsc::channel();
        let options = LockOptions::new().renew(renew).on_lost(move |lost| tell.send(lost.clone()).unwrap());
        let lock = lock_with(&client, &options);
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let watcher = scope.spawn(|| guard.wait_lost_for(LONG));
            let behind = scope.spawn(|| lock.lock().map(drop));
            thread::sleep(ms(20));
            assert!(!watcher.is_finished() && !behind.is_finished());
            let start = Instant::now();
            fake.expire("k");
            assert!(!guard.is_valid() && guard.remaining().is_zero(), "{renew:?}");
            assert!(watcher.join().unwrap());
            behind.join().unwrap().unwrap();
            let lost = told.recv_timeout(LONG).unwrap();
            assert!(start.elapsed() < ms(500) + SLACK, "{renew:?}: {:?}", start.elapsed());
            assert_eq!((&*lost.key, lost.fence, lost.reason), ("k", guard.fence(), LostReason::Expired));
        });
        assert_eq!(kind_of(guard.extend(Duration::ZERO)), Some(ErrorKind::Lost));
        let text = guard.unlock().unwrap_err().to_string();
        assert_eq!(text, r#"lock "k" on "fake" was lost: its lease ran out"#);
    }
}

#[test]
fn whoever_comes_next_has_an_expired_fake_lock_and_a_higher_fence() {
    let (client, fake) = testing::client();
    let guard = DistLock::new(&client, "k").lock().unwrap();
    fake.expire("k");
    let next = DistLock::new(&fake.client(), "k").try_lock().unwrap();
    assert!(next.fence() > guard.fence());
    drop(guard);
    assert!(next.is_valid(), "the late one ends nobody else's hold");
    next.unlock().unwrap();
}

#[test]
fn a_fake_lock_expires_also_while_the_fake_is_down_and_when_it_was_resumed_or_given_away() {
    let (client, fake) = testing::client();
    let lock = DistLock::new(&client, "k");
    let token = lock.lock().unwrap().into_token().unwrap();
    let resumed = lock.resume(&token).unwrap();
    fake.set_down(true);
    fake.expire("k");
    assert!(!resumed.is_valid());
    fake.set_down(false);
    assert_eq!(kind_of(resumed.unlock()), Some(ErrorKind::Lost));
    let token = lock.lock().unwrap().into_token().unwrap();
    fake.expire("k");
    assert_eq!(kind_of(lock.resume(&token)), Some(ErrorKind::Lost));
}

#[test]
fn expire_ends_the_hold_of_its_key_and_no_other() {
    let (client, fake) = testing::client();
    let [one, other] = ["k", "o"].map(|key| DistLock::new(&client, key).lock().unwrap());
    for key in ["", "K", "k ", "nobody's"] {
        fake.expire(key);
    }
    assert!(one.is_valid());
    fake.expire("k");
    assert!(!one.is_valid() && other.is_valid());
    // The next hold of the key is not that of before.
    let next = DistLock::new(&client, "k").lock().unwrap();
    assert!(next.is_valid());
    next.unlock().unwrap();
    fake.expire("k");
    other.unlock().unwrap();
}

#[test]
fn two_guards_are_never_both_valid_however_often_their_key_expires() {
    let (client, fake) = testing::client();
    let (newest, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let contend = |client: &LockClient| {
        let lock = DistLock::new(client, "k");
        for _ in 0..3000 {
            let Ok(guard) = lock.try_lock() else { continue };
            newest.fetch_max(guard.fence(), SeqCst);
            for _ in 0..3 {
                let overtaken = newest.load(SeqCst) > guard.fence();
                assert!(!overtaken || !guard.is_valid(), "a later guard was there, and this one is valid");
                thread::yield_now();
            }
        }
    };
    thread::scope(|scope| {
        let threads = [client.clone(), fake.client()].map(|client| scope.spawn(move || contend(&client)));
        scope.spawn(|| {
            while !ended.load(SeqCst) {
                fake.expire("k");
                thread::yield_now();
            }
        });
        let outcomes = threads.map(|thread| thread.join());
        ended.store(true, SeqCst);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
}

#[test]
fn fakes_share_nothing_and_clients_of_one_exclude_each_other() {
    let ((here, fake), (elsewhere, other)) = (testing::client(), testing::client());
    let there = fake.clone().client();
    let guard = DistLock::new(&here, "k").lock().unwrap();
    assert!(DistLock::new(&there, "k").try_lock().unwrap_err().is_taken());
    DistLock::new(&elsewhere, "k").try_lock().unwrap().unlock().unwrap();
    other.expire("k");
    other.set_down(true);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    DistLock::new(&there, "k").try_lock().unwrap().unlock().unwrap();
}

#[test]
fn clients_live_on_without_the_value_that_made_them() {
    let (client, fake) = testing::client();
    drop(fake);
    let guard = DistLock::new(&client, "k").lock().unwrap();
    drop(client);
    guard.unlock().unwrap();
}

#[test]
fn the_fake_can_be_shared_moved_cloned_and_printed() {
    use std::panic::{RefUnwindSafe, UnwindSafe};
    fn handle<T: Clone + Send + Sync + std::fmt::Debug + UnwindSafe + RefUnwindSafe + 'static>() {}
    handle::<FakeRedis>();
}
