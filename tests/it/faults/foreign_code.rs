//! Code that is not ours and runs inside our calls and threads: what a callback holds, loggers that
//! panic, connections of a given pool.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use distlock::{
    ClientOptions, DistLock, ErrorKind, LockClient, LockOptions,
    r2d2::{ManageConnection, Pool},
    redis::{Client, Connection, ConnectionLike, RedisError, RedisResult, Value},
};

use crate::support::proxy::{RELEASE, RENEW, TRY, calls};
use crate::support::{Fate, Proxy, Server, Way, eventually, workers};

const LONG: Duration = Duration::from_secs(10);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Threads of this process whose name begins so.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name)).count()
}

/// A hold whose guard and lock go while its renewal is under way: the last of it is dropped by the watchdog.
fn dropped_by_the_watchdog(proxy: &Proxy, client: &LockClient, options: LockOptions) {
    let lock = DistLock::with_options(client, "k", &options.ttl(ms(3000))).unwrap();
    let guard = lock.lock().unwrap();
    proxy.rule(Way::Reply, Fate::Hold, 1, calls(RENEW));
    eventually(LONG, "a renewal under way", || proxy.held() == 1);
    drop((guard, lock));
}

#[test]
fn what_a_callback_holds_may_be_a_guard_of_the_same_client() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = LockClient::open(proxy.url()).unwrap();
    let other = DistLock::new(&client, "other").lock().unwrap();
    let inner = DistLock::new(&client, "inner").lock().unwrap();
    let options = LockOptions::new().on_lost(move |_| assert!(!inner.token().is_empty()));
    dropped_by_the_watchdog(&proxy, &client, options);
    proxy.release();
    eventually(LONG, "the inner guard is dropped, and released", || {
        server.ask::<Option<String>>(&["GET", "inner"]).is_none()
    });
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(other.unlock().is_ok()));
    assert!(wait.recv_timeout(LONG).expect("an unrelated unlock does not hang"));
}

#[test]
fn what_a_callback_holds_may_be_the_last_of_its_client() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let client = ClientOptions::new().name("last").open(proxy.url()).unwrap();
    let mine = client.clone();
    let options = LockOptions::new().on_lost(move |_| drop(mine.ping()));
    dropped_by_the_watchdog(&proxy, &client, options);
    drop(client);
    assert_eq!(threads("distlock-dog la"), 1);
    proxy.release();
    eventually(LONG, "its thread ends", || threads("distlock-dog la") == 0);
}

#[test]
fn what_a_callback_holds_may_lock_the_same_key_when_it_is_dropped() {
    struct OnDrop(Option<Box<dyn FnOnce() + Send + Sync>>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.take().expect("once")();
        }
    }

    let server = Server::start();
    let client = LockClient::open(server.url()).unwrap();
    let again = DistLock::new(&client, "k");
    let (tell, told) = mpsc::channel();
    let value = OnDrop(Some(Box::new(move || tell.send(again.try_lock().is_ok()).unwrap_or_default())));
    let options = LockOptions::new().on_lost(move |_| assert!(value.0.is_some()));
    let lock = DistLock::with_options(&client, "k", &options).unwrap();
    drop(options);
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let guard = lock.lock().unwrap();
        drop(lock);
        done.send(guard.into_token().is_ok())
    });
    assert!(wait.recv_timeout(LONG).expect("into_token does not hang"));
    assert!(told.recv_timeout(LONG).is_ok());
}

/// Panics at every line that has this text.
struct Bomb;

static TRIGGER: Mutex<Option<&str>> = Mutex::new(None);

impl log::Log for Bomb {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let trigger = *TRIGGER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let line = record.args().to_string();
        assert!(!trigger.is_some_and(|trigger| line.contains(trigger)), "a logger that panics at {line:?}");
    }

    fn flush(&self) {}
}

fn panic_at(text: Option<&'static str>) {
    *TRIGGER.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = text;
}

#[test]
fn a_logger_that_panics_ends_no_renewal_and_leaves_no_lock() {
    let server = Server::start();
    // In a process of its own: there is one logger a process.
    workers::ends_well(workers::start("panicking logger", &server), Duration::from_secs(60));
}

pub(crate) fn panicking_logger(url: &str) {
    log::set_logger(&Bomb).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let port = url.trim_end_matches('/').rsplit_once(':').unwrap().1.parse().unwrap();
    let proxy = Proxy::to(port);
    let client = ClientOptions::new().io_timeout(ms(100)).open(proxy.url()).unwrap();
    let other = LockClient::open(url).unwrap();
    let brief = LockOptions::new().ttl(ms(600));
    let kept = DistLock::with_options(&client, "kept", &brief).unwrap().lock().unwrap();
    callers_unwind_and_leave_nothing(&proxy, &client, &other);
    the_watchdog_goes_on(&proxy, &client, &other);
    assert!(!kept.wait_lost_for(ms(1500)), "renewed all the time");
    kept.unlock().unwrap();
}

/// The call panics where it logs this.
#[track_caller]
fn hurt<T>(text: &'static str, call: impl FnOnce() -> T) {
    panic_at(Some(text));
    let outcome = catch_unwind(AssertUnwindSafe(|| drop(call())));
    panic_at(None);
    assert!(outcome.is_err(), "nothing was logged with {text:?}");
}

fn callers_unwind_and_leave_nothing(proxy: &Proxy, client: &LockClient, other: &LockClient) {
    let (lock, theirs) = (DistLock::new(client, "k"), DistLock::new(other, "k"));
    let is_free = || eventually(LONG, "free, long before its ttl", || !theirs.is_locked().unwrap());
    hurt("acquired after", || lock.lock());
    is_free();
    let guard = theirs.lock().unwrap();
    hurt("is taken", || lock.lock());
    guard.unlock().unwrap();
    let guard = lock.try_lock().expect("the gate is not left to a thread that is gone");
    hurt("released after", || guard.unlock());
    is_free();
    proxy.rule(Way::Reply, Fate::Lose, 1, calls(TRY));
    hurt("gives no lock", || lock.lock());
    is_free();
    drop(lock.try_lock().unwrap());
}

fn the_watchdog_goes_on(proxy: &Proxy, client: &LockClient, other: &LockClient) {
    let brief = LockOptions::new().ttl(ms(600));
    let lock = |key| DistLock::with_options(client, key, &brief).unwrap();
    panic_at(Some("no answer, again soon"));
    proxy.rule(Way::Reply, Fate::Lose, 1, calls(RENEW));
    let guard = lock("a").lock().unwrap();
    assert!(!guard.wait_lost_for(ms(1500)), "renewed after a failed renewal");
    panic_at(Some("was lost"));
    assert!(DistLock::new(other, "a").force_unlock().unwrap());
    assert!(guard.wait_lost_for(LONG));
    panic_at(None);
    guard.unlock().unwrap_err();
    panic_at(Some("could not be released while"));
    let guard = lock("b").lock().unwrap();
    proxy.rule(Way::Request, Fate::Lose, usize::MAX, calls(RELEASE));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(guard)));
    std::thread::sleep(ms(1500));
    proxy.pass();
    panic_at(None);
}

/// The application's own connections, one of whose calls panics.
struct Fragile(Client, Arc<AtomicBool>);
struct FragileConnection(Connection, Arc<AtomicBool>);

impl ManageConnection for Fragile {
    type Connection = FragileConnection;
    type Error = RedisError;

    fn connect(&self) -> RedisResult<FragileConnection> {
        Ok(FragileConnection(self.0.get_connection()?, Arc::clone(&self.1)))
    }

    fn is_valid(&self, _: &mut FragileConnection) -> RedisResult<()> {
        Ok(())
    }

    fn has_broken(&self, _: &mut FragileConnection) -> bool {
        false
    }
}

impl ConnectionLike for FragileConnection {
    fn req_packed_command(&mut self, cmd: &[u8]) -> RedisResult<Value> {
        let answer = self.0.req_packed_command(cmd);
        assert!(!self.1.swap(false, SeqCst), "a connection that panics");
        answer
    }

    fn req_packed_commands(&mut self, cmd: &[u8], offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        self.0.req_packed_commands(cmd, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }

    fn check_connection(&mut self) -> bool {
        self.0.check_connection()
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

#[test]
fn a_given_connection_that_panics_is_an_error_and_what_it_took_is_taken_back() {
    let server = Server::start();
    let panics = Arc::new(AtomicBool::new(false));
    let manager = Fragile(Client::open(server.url()).unwrap(), Arc::clone(&panics));
    let pool = Pool::builder().max_size(2).min_idle(Some(0)).build(manager).unwrap();
    let client = ClientOptions::new().io_timeout(ms(200)).open_pool(pool).unwrap();
    let options = LockOptions::new().ttl(ms(900));
    let kept = DistLock::with_options(&client, "kept", &options).unwrap().lock().unwrap();
    let lock = DistLock::new(&client, "k");
    lock.lock().unwrap().unlock().unwrap();
    panics.store(true, SeqCst);
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Protocol);
    eventually(LONG, "taken back, long before its ttl", || !lock.is_locked().unwrap());
    panics.store(true, SeqCst);
    eventually(LONG, "a renewal that panicked", || !panics.load(SeqCst));
    assert!(!kept.wait_lost_for(ms(2000)), "renewed again");
    kept.unlock().unwrap();
}

#[test]
fn a_batch_without_answers_on_a_given_pool_is_waited_for_once() {
    struct Timed(Client);

    impl ManageConnection for Timed {
        type Connection = Connection;
        type Error = RedisError;

        fn connect(&self) -> RedisResult<Connection> {
            let connection = self.0.get_connection()?;
            connection.set_read_timeout(Some(ms(500)))?;
            Ok(connection)
        }

        fn is_valid(&self, _: &mut Connection) -> RedisResult<()> {
            Ok(())
        }

        fn has_broken(&self, connection: &mut Connection) -> bool {
            !connection.is_open()
        }
    }

    const LOCKS: usize = 20;
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let manager = Timed(Client::open(proxy.url()).unwrap());
    let pool = Pool::builder().max_size(4).min_idle(Some(0)).build(manager).unwrap();
    let client = LockClient::from_pool(pool);
    let options = LockOptions::new().ttl(ms(3000));
    let lock = |i| DistLock::with_options(&client, format!("k{i}"), &options).unwrap();
    let guards: Vec<_> = (0..LOCKS).map(|i| lock(i).lock().unwrap()).collect();
    // As of a server that stands still for longer than the connection's timeout, and then answers all.
    proxy.rule(Way::Reply, Fate::Hold, LOCKS, calls(RENEW));
    eventually(LONG, "a renewal under way", || proxy.held() > 0);
    std::thread::sleep(ms(700));
    proxy.pass();
    proxy.release();
    std::thread::sleep(ms(4000));
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0);
}
