//! std's own tests of its mutex, by their names, on a lock that spans processes: "Mutex-like" is
//! checked, not claimed. Those about data, poisoning and construction have no meaning here.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use distlock::{DistLock, LockClient};

use crate::support::Server;

fn lock(server: &Server) -> DistLock {
    DistLock::new(&LockClient::open(server.url()).unwrap(), "m")
}

#[test]
fn smoke() {
    let server = Server::start();
    let m = lock(&server);
    drop(m.lock().unwrap());
    drop(m.lock().unwrap());
}

#[test]
fn lots_and_lots() {
    const THREADS: u32 = 3;
    const ROUNDS: u32 = 100;
    let server = Server::start();
    let m = lock(&server);
    // Only to make the counter shareable: nobody ever waits for it.
    let counter = Arc::new(Mutex::new(0));
    let (tx, rx) = channel();
    for _ in 0..2 * THREADS {
        let (tx, m, counter) = (tx.clone(), m.clone(), Arc::clone(&counter));
        thread::spawn(move || {
            for _ in 0..ROUNDS {
                let _guard = m.lock().unwrap();
                *counter.try_lock().expect("nobody else is in") += 1;
            }
            tx.send(()).unwrap();
        });
    }
    drop(tx);
    (0..2 * THREADS).for_each(|_| rx.recv().unwrap());
    assert_eq!(*counter.lock().unwrap(), 2 * THREADS * ROUNDS);
}

#[test]
fn try_lock() {
    let server = Server::start();
    let m = lock(&server);
    let guard = m.try_lock().unwrap();
    assert!(m.try_lock().unwrap_err().is_taken());
    drop(guard);
    assert!(m.try_lock().is_ok());
}

#[test]
fn test_mutex_arc_nested() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let (outer, inner) = (Arc::new(DistLock::new(&client, "outer")), Arc::new(DistLock::new(&client, "inner")));
    let nested = thread::spawn(move || {
        let _outer = outer.lock().unwrap();
        let _inner = inner.lock().unwrap();
    });
    nested.join().unwrap();
}

#[test]
fn test_mutex_arc_access_in_unwind() {
    struct Unwinder(DistLock);
    impl Drop for Unwinder {
        fn drop(&mut self) {
            self.0.lock().unwrap().unlock().unwrap();
        }
    }

    let server = Server::start();
    let m = lock(&server);
    let theirs = m.clone();
    let panicked = thread::spawn(move || {
        let _unwinder = Unwinder(theirs);
        panic!("to lock while unwinding");
    });
    assert!(panicked.join().is_err());
    assert!(m.try_lock().is_ok());
}

#[test]
fn panic_while_mapping_unlocked() {
    let server = Server::start();
    let m = lock(&server);
    // The handles are unwind safe, as std's are: no wrapper is needed.
    let caught = panic::catch_unwind(|| {
        let _guard = m.lock().unwrap();
        panic!("while it is held");
    });
    assert!(caught.is_err());
    // There is no poisoning.
    assert!(m.try_lock().is_ok());
    let guard = m.lock().unwrap();
    assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(guard))).is_ok());
}

/// lock_api's names.
#[test]
fn try_lock_for() {
    let server = Server::start();
    let m = lock(&server);
    let guard = m.try_lock_for(Duration::from_secs(5)).unwrap();
    assert!(m.try_lock_for(Duration::from_millis(20)).unwrap_err().is_taken());
    drop(guard);
    assert!(m.try_lock_for(Duration::from_millis(20)).is_ok());
}

#[test]
fn try_lock_until() {
    let server = Server::start();
    let m = lock(&server);
    let guard = m.try_lock_until(Instant::now() + Duration::from_secs(5)).unwrap();
    assert!(m.try_lock_until(Instant::now() + Duration::from_millis(20)).unwrap_err().is_taken());
    drop(guard);
    assert!(m.try_lock_until(Instant::now() + Duration::from_millis(20)).is_ok());
}
