//! What can be renewed is kept: a lock held for twenty times its ttl, while renewals meet faults that
//! leave time for another.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use distlock::{ClientOptions, DistLock, DistLockGuard, LockClient, LockOptions};

use crate::support::{Fate, Proxy, SLACK, Server, Way, dice::Dice};

const TTL: Duration = Duration::from_millis(1500);
/// Renewed every 500 ms: one fault costs at most this, and a pause.
const IO: Duration = Duration::from_millis(250);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_lock_is_kept_for_twenty_times_its_ttl_through_faults_that_leave_time_for_another_renewal() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    let seed = std::env::var("DISTLOCK_SEED").map_or(since.subsec_nanos().into(), |text| text.parse().expect("a seed"));
    println!("DISTLOCK_SEED={seed}");
    let mut dice = Dice::of(seed);
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().io_timeout(IO).open(proxy.url()).unwrap();
    let lost = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&lost);
    let options = LockOptions::new().ttl(TTL).on_lost(move |_| {
        theirs.fetch_add(1, SeqCst);
    });
    let guards: Vec<DistLockGuard> =
        (0..20).map(|i| DistLock::with_options(&client, format!("k{i}"), &options).unwrap().lock().unwrap()).collect();
    let end = Instant::now() + 20 * TTL;
    let mut faults = 0;
    while Instant::now() < end {
        let way = dice.one_of(&[Way::Request, Way::Reply]);
        match dice.below(6) {
            0 => proxy.rule(way, Fate::Lose, 1, |_: &[u8]| true),
            1 => proxy.rule(way, Fate::Cut, 1, |_: &[u8]| true),
            2 => proxy.rule(way, Fate::Halve, 1, |_: &[u8]| true),
            3 => proxy.rule(way, Fate::Delay(dice.millis(10, 200)), 3, |_: &[u8]| true),
            4 => {
                server.pause();
                thread::sleep(dice.millis(10, 250));
                server.resume();
            }
            _ => {
                let _: () = server.ask(&["SCRIPT", "FLUSH"]);
            }
        }
        faults += 1;
        thread::sleep(dice.millis(400, 700));
        let invalid = guards.iter().filter(|guard| !guard.is_valid()).count();
        assert_eq!((invalid, lost.load(SeqCst)), (0, 0), "DISTLOCK_SEED={seed}, after {faults} faults");
    }
    proxy.pass();
    for guard in guards {
        guard.unlock().unwrap();
    }
    assert_eq!(lost.load(SeqCst), 0);
}

/// A guard whose loss is awaited in every way there is; how late each was.
fn watch(client: &LockClient, i: u64, late: &Mutex<Vec<Duration>>) -> Duration {
    let told = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&told);
    let ttl = ms(400 + 37 * i);
    let options = LockOptions::new().ttl(ttl).on_lost(move |_| *theirs.lock().unwrap() = Some(Instant::now()));
    let guard = DistLock::with_options(client, format!("k{i}"), &options).unwrap().lock().unwrap();
    thread::sleep(ms(300));
    // From here on no renewal has an answer.
    let ends = Instant::now() + guard.remaining();
    assert!(guard.wait_lost_for(ttl + SLACK));
    let waited = Instant::now();
    assert!(!guard.is_valid());
    let end = Instant::now() + SLACK;
    while told.lock().unwrap().is_none() {
        assert!(Instant::now() < end, "not told");
        thread::sleep(ms(1));
    }
    let told = told.lock().unwrap().expect("told");
    let mut late = late.lock().unwrap();
    late.extend([waited, told].map(|at| at.saturating_duration_since(ends)));
    ends.saturating_duration_since(waited.min(told))
}

#[test]
fn every_loss_is_signalled_when_the_lease_ends_by_the_local_clock_in_every_way_there_is() {
    let server = Server::start();
    let client = ClientOptions::new().open(server.url()).unwrap();
    let late = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let watching: Vec<_> = (0..20)
            .map(|i| {
                scope.spawn({
                    let (client, late) = (&client, &late);
                    move || watch(client, i, late)
                })
            })
            .collect();
        // Renewals that are on their way hang, and their answers are lost with the server's end.
        thread::sleep(ms(200));
        server.pause();
        for watching in watching {
            assert!(watching.join().unwrap() < ms(5), "before its end");
        }
    });
    server.resume();
    let mut late = late.into_inner().unwrap();
    late.sort();
    println!(
        "late by {:?} in the middle, {:?} at the most, of {}",
        late[late.len() / 2],
        late[late.len() - 1],
        late.len()
    );
    assert_eq!(late.len(), 40);
    assert!(late[late.len() - 1] < SLACK, "{late:?}");
}
