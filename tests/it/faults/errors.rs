//! Error answers of a server: which are ridden out, which end a wait at once, and what a demoted
//! master must not look like.

use std::{
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, ErrorKind, LockClient, LockOptions};

use crate::support::{SLACK, Server, eventually};

const PATIENCE: Duration = Duration::from_millis(400);

fn lock(url: &str) -> DistLock {
    let client = LockClient::open(url).unwrap();
    DistLock::with_options(&client, "k", &LockOptions::new().unreachable_after(PATIENCE)).unwrap()
}

/// `try_lock` says it at once, and `lock` after its patience.
#[track_caller]
fn is_ridden_out(lock: &DistLock, kind: ErrorKind) {
    assert_eq!(lock.try_lock().unwrap_err().kind(), kind);
    let start = Instant::now();
    let error = lock.lock().unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.is_transient());
    assert!(start.elapsed() >= PATIENCE, "{:?}", start.elapsed());
}

/// Every call says it at once.
#[track_caller]
fn is_final(lock: &DistLock, kind: ErrorKind) {
    for call in [DistLock::lock, DistLock::try_lock, |lock: &DistLock| lock.try_lock_for(Duration::from_secs(20))] {
        let start = Instant::now();
        let error = call(lock).unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(!error.is_transient());
        assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    }
}

#[test]
fn memory_that_is_full_refuses_the_lock_and_not_the_release() {
    let server = Server::start();
    let lock = lock(&server.url());
    let other = DistLock::new(&LockClient::open(server.url()).unwrap(), "other");
    let guard = other.lock().unwrap();
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    is_ridden_out(&lock, ErrorKind::Unavailable);
    guard.extend(Duration::from_secs(40)).unwrap();
    guard.unlock().unwrap();
    assert!(!other.is_locked().unwrap());
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let held = other.lock().unwrap();
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(other.force_unlock().unwrap());
    assert_eq!(held.unlock().unwrap_err().kind(), ErrorKind::Lost);
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(lock.try_lock().is_ok());
}

#[test]
fn too_few_replicas_are_ridden_out() {
    let server = Server::start();
    let _: () = server.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    is_ridden_out(&lock(&server.url()), ErrorKind::Unavailable);
}

#[test]
fn a_failed_snapshot_is_ridden_out() {
    let server = Server::start();
    let _: () = server.ask(&["CONFIG", "SET", "save", "3600 1"]);
    let _: () = server.ask(&["SET", "x", "y"]);
    server.break_snapshots();
    is_ridden_out(&lock(&server.url()), ErrorKind::Unavailable);
}

#[test]
fn a_busy_script_is_ridden_out() {
    let server = Server::start();
    let _: () = server.ask(&["CONFIG", "SET", "busy-reply-threshold", "10"]);
    let lock = lock(&server.url());
    lock.lock().unwrap().unlock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = server.connection();
            let looping = redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection);
            assert!(looping.is_err(), "it is killed");
        });
        let error = || lock.try_lock().err().map(|e| e.kind());
        eventually(Duration::from_secs(3), "busy", || error() == Some(ErrorKind::Unavailable));
        is_ridden_out(&lock, ErrorKind::Unavailable);
        let _: () = server.ask(&["SCRIPT", "KILL"]);
    });
    // A lock that was taken before the script began may still be on its way back.
    eventually(Duration::from_secs(3), "free", || lock.try_lock().is_ok());
}

#[test]
fn a_server_that_loads_its_data_is_ridden_out() {
    let mut server = Server::with(&["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"]);
    let _: () = server.ask(&["DEBUG", "POPULATE", "2000"]);
    let _: () = server.ask(&["SAVE"]);
    let lock = lock(&server.url());
    lock.lock().unwrap().unlock().unwrap();
    server.kill();
    server.restart();
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unavailable);
    let patient = DistLock::new(&LockClient::open(server.url()).unwrap(), "k");
    patient.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_server_with_too_many_clients_is_ridden_out() {
    let server = Server::start();
    let first = server.connection();
    let mut admin = server.connection();
    redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(2).exec(&mut admin).unwrap();
    let lock = lock(&server.url());
    let error = lock.try_lock().unwrap_err();
    // The refusal may be lost in the reset of the connection.
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unreachable), "{error:?}");
    let patient = DistLock::new(&LockClient::open(server.url()).unwrap(), "k");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| patient.lock().unwrap().unlock());
        thread::sleep(PATIENCE);
        assert!(!waiting.is_finished());
        drop(first);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn bad_credentials_end_every_wait_at_once() {
    let server = Server::with(&["--requirepass", "right"]);
    is_final(&lock(&server.url()), ErrorKind::Denied);
    let url = |login: &str| format!("redis://{login}@127.0.0.1:{}/", server.port());
    is_final(&lock(&url(":wrong")), ErrorKind::Denied);
    is_final(&lock(&url("nobody:right")), ErrorKind::Denied);
    let right = LockClient::open(url(":right")).unwrap();
    right.ping().unwrap();
    assert!(DistLock::new(&right, "k").try_lock().is_ok());
    let open = Server::start();
    is_final(&lock(&format!("redis://:needless@127.0.0.1:{}/", open.port())), ErrorKind::Denied);
}

#[test]
fn a_user_without_the_rights_is_denied_at_once_and_ping_finds_out() {
    let server = Server::start();
    let rights = ["+@all -eval -evalsha", "+@all -set", "+@all -time", "+@all -del", "+@all -renamenx"];
    for (i, rights) in rights.iter().enumerate() {
        let name = format!("u{i}");
        let mut command = vec!["ACL", "SETUSER", &name, "on", ">pw", "~*", "&*"];
        command.extend(rights.split(' '));
        let _: () = server.ask(&command);
        let client = LockClient::open(format!("redis://{name}:pw@127.0.0.1:{}/", server.port())).unwrap();
        assert_eq!(client.ping().unwrap_err().kind(), ErrorKind::Denied, "{rights}");
    }
    // The lock's own key and not its helpers: what would refuse the release refuses the acquisition.
    let _: () = server.ask(&["ACL", "SETUSER", "half", "on", ">pw", "~k", "+@all"]);
    is_final(&lock(&format!("redis://half:pw@127.0.0.1:{}/", server.port())), ErrorKind::Denied);
    let _: () = server.ask(&["ACL", "SETUSER", "least", "on", ">pw", "~k", "~distlock:*", "&distlock:*"]);
    let least = "+client|setname +eval +evalsha +get +set +del +pttl +pexpire +renamenx +exists +time +zrem +hdel";
    let mut command = vec!["ACL", "SETUSER", "least"];
    command.extend(least.split(' '));
    let _: () = server.ask(&command);
    let client = LockClient::open(format!("redis://least:pw@127.0.0.1:{}/", server.port())).unwrap();
    client.ping().unwrap();
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    // A user who may set and not delete leaves the probe to its ttl.
    eventually(Duration::from_secs(3), "ping leaves nothing", || {
        server.ask::<Vec<String>>(&["KEYS", "*"]) == ["distlock:fence:{k}"]
    });
}

#[test]
fn a_database_that_is_not_there_ends_every_wait_at_once() {
    let server = Server::start();
    is_final(&lock(&format!("redis://127.0.0.1:{}/99", server.port())), ErrorKind::InvalidOption);
}

#[test]
fn a_key_that_is_no_lock_ends_every_wait_at_once_and_stays() {
    let server = Server::start();
    let lock = lock(&server.url());
    let _: () = server.ask(&["RPUSH", "k", "a list"]);
    is_final(&lock, ErrorKind::WrongType);
    assert_eq!(lock.holder().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(lock.is_locked().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(lock.force_unlock().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(lock.resume("token").unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(server.ask::<u32>(&["LLEN", "k"]), 1);
}

#[test]
fn a_demoted_master_does_not_look_like_a_lost_lock() {
    let (server, other) = (Server::start(), Server::start());
    let client = ClientOptions::new().open(server.url()).unwrap();
    let options = LockOptions::new().ttl(Duration::from_secs(3)).unreachable_after(PATIENCE);
    let (kept, given) = ("kept", "given");
    let guard = DistLock::with_options(&client, kept, &options).unwrap().lock().unwrap();
    let released = DistLock::with_options(&client, given, &options).unwrap().lock().unwrap();
    // As a replica of an empty master it loses its data, and answers READONLY to writes.
    let _: () = server.ask(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    eventually(Duration::from_secs(10), "emptied", || server.ask::<u32>(&["DBSIZE"]) == 0);
    released.unlock().expect("the lease is good, and the master asked was none");
    assert_eq!(guard.extend(Duration::ZERO).unwrap_err().kind(), ErrorKind::Unavailable);
    let error = guard.exec(distlock::redis::pipe().set("data", 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(guard.is_valid(), "a replica's word ends no lease");
    let lock = DistLock::with_options(&client, "new", &options).unwrap();
    is_ridden_out(&lock, ErrorKind::Unavailable);
    let _: () = server.ask(&["REPLICAOF", "NO", "ONE"]);
    assert!(lock.try_lock_for(Duration::from_secs(3)).is_ok());
    // The lock itself did not survive: a master's word does.
    assert!(guard.wait_lost_for(Duration::from_secs(3)));
}
