//! The first look: it locks, it excludes, it releases.

use distlock::{DistLock, LockClient};

use crate::support::Server;

#[test]
fn a_lock_excludes_until_it_is_released() {
    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    client.ping().unwrap();
    let other = LockClient::open(server.url()).unwrap();
    let (mine, yours) = (DistLock::new(&client, "orders:42"), DistLock::new(&other, "orders:42"));
    let guard = mine.lock().unwrap();
    assert!(yours.try_lock().unwrap_err().is_taken());
    assert_eq!(yours.holder().unwrap().unwrap().token, guard.token());
    let first = guard.fence();
    guard.unlock().unwrap();
    assert!(!mine.is_locked().unwrap());
    let guard = yours.try_lock().unwrap();
    assert!(guard.fence() > first);
    drop(guard);
    assert!(!mine.is_locked().unwrap());
}
