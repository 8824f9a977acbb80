//! Lockers that break one promise each, and the sound one beside them: what the referees are tested
//! with. Everything but its flaw is right in each of them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::{ClientOptions, DistLock, DistLockGuard, LockOptions, Renew};
use redis::{Connection, Script};

use crate::support::story::{Hold, nanos, now};

pub(crate) const KEY: &str = "k";
pub(crate) const TTL: Duration = Duration::from_millis(500);
pub(crate) const IO: Duration = Duration::from_millis(200);

pub(crate) trait Locker: Send {
    /// One attempt. What it answers is what its user would believe.
    fn acquire(&mut self) -> Option<Hold>;
    fn release(&mut self);
}

pub(crate) type Make = fn(&str) -> Box<dyn Locker>;

fn validity() -> u64 {
    nanos(TTL - TTL / 100 - Duration::from_millis(2))
}

fn hold(token: &str, fence: u64, sent: u64, valid: u64) -> Hold {
    let (key, token) = (KEY.to_owned(), token.to_owned());
    Hold { key, token, fence, sent, acquired: now(), valid, ttl: nanos(TTL), ..Hold::default() }
}

/// The crate's own, with one lease.
struct Sound {
    lock: DistLock,
    guard: Option<DistLockGuard>,
}

pub(crate) fn sound(url: &str) -> Box<dyn Locker> {
    let client = ClientOptions::new().io_timeout(IO).open(url).unwrap();
    let options = LockOptions::new().ttl(TTL).renew(Renew::Never);
    Box::new(Sound { lock: DistLock::with_options(&client, KEY, &options).unwrap(), guard: None })
}

impl Locker for Sound {
    fn acquire(&mut self) -> Option<Hold> {
        let guard = self.lock.try_lock().ok()?;
        let acquired = now();
        let valid = acquired + nanos(guard.remaining());
        let hold = Hold { acquired, ..hold(guard.token(), guard.fence(), valid - validity(), valid) };
        self.guard = Some(guard);
        Some(hold)
    }

    fn release(&mut self) {
        self.guard = None;
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    /// It releases whatever is there.
    BareDel,
    /// Its lease counts from the answer.
    NoClockCheck,
    /// Its fence is a counter that the server may forget.
    IncrFence,
    /// Its fence is always the same.
    NoFence,
    /// It waits for an answer as long as it takes.
    NoTimeout,
}

/// `SET` with a ttl and compare-and-delete, on one bare connection.
struct Raw {
    connection: Connection,
    token: String,
    flaw: Flaw,
}

/// KEYS lock, fence; ARGV –, token, ttl, fence or '' (a counter's). The answer is the fence; 0: taken.
const TAKE: &str = "
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local fence = ARGV[4]
if fence == '' then fence = redis.call('INCR', KEYS[2]) end
if fence == 'time' then
  local time = redis.call('TIME')
  fence = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return tonumber(fence)
";
const GIVE_BACK: &str = "if redis.call('GET', KEYS[1]) == ARGV[2] then redis.call('DEL', KEYS[1]) end";
const COUNTER: &str = "distlock:fence:{k}";

fn raw(url: &str, flaw: Flaw) -> Box<dyn Locker> {
    let timeout = (flaw != Flaw::NoTimeout).then_some(4 * TTL);
    let connection = connect(url);
    connection.set_read_timeout(timeout).expect("a socket option");
    Box::new(Raw { connection, token: String::new(), flaw })
}

fn connect(url: &str) -> Connection {
    redis::Client::open(url).expect("an address").get_connection().expect("a connection")
}

impl Locker for Raw {
    fn acquire(&mut self) -> Option<Hold> {
        let sent = now();
        self.token = format!("raw-{sent}");
        let fence = match self.flaw {
            Flaw::IncrFence => "",
            Flaw::NoFence => "1",
            _ => "time",
        };
        let script = Script::new(TAKE);
        let mut call = script.key(KEY);
        let call = call.key(COUNTER).arg(0).arg(&self.token).arg(TTL.as_millis() as u64).arg(fence);
        let fence: u64 = call.invoke(&mut self.connection).ok().filter(|&fence| fence > 0)?;
        let from = if self.flaw == Flaw::NoClockCheck { now() } else { sent };
        if now() >= from + validity() {
            self.release();
            return None;
        }
        Some(hold(&self.token, fence, sent, from + validity()))
    }

    fn release(&mut self) {
        let released: redis::RedisResult<()> = if self.flaw == Flaw::BareDel {
            redis::cmd("DEL").arg(KEY).query(&mut self.connection)
        } else {
            Script::new(GIVE_BACK).key(KEY).arg(0).arg(&self.token).invoke(&mut self.connection)
        };
        released.expect("a release");
        let _: () = redis::cmd("PEXPIRE").arg(COUNTER).arg(86_400_000).query(&mut self.connection).expect("a ttl");
    }
}

pub(crate) fn bare_del(url: &str) -> Box<dyn Locker> {
    raw(url, Flaw::BareDel)
}

pub(crate) fn no_clock_check(url: &str) -> Box<dyn Locker> {
    raw(url, Flaw::NoClockCheck)
}

pub(crate) fn incr_fence(url: &str) -> Box<dyn Locker> {
    raw(url, Flaw::IncrFence)
}

pub(crate) fn no_fence(url: &str) -> Box<dyn Locker> {
    raw(url, Flaw::NoFence)
}

pub(crate) fn no_timeout(url: &str) -> Box<dyn Locker> {
    raw(url, Flaw::NoTimeout)
}

/// SETNX, and GETSET where the value, which is when it expires, is over by the client's own clock.
struct Getset {
    connection: Connection,
    /// How far its clock is ahead.
    ahead: Duration,
    value: u64,
}

pub(crate) fn getset(url: &str) -> Box<dyn Locker> {
    Box::new(Getset { connection: connect(url), ahead: Duration::ZERO, value: 0 })
}

pub(crate) fn getset_ahead(url: &str) -> Box<dyn Locker> {
    Box::new(Getset { connection: connect(url), ahead: Duration::from_secs(60), value: 0 })
}

/// Milliseconds of the wall clock.
pub(crate) fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_millis() as u64
}

impl Locker for Getset {
    fn acquire(&mut self) -> Option<Hold> {
        let (sent, here) = (now(), wall() + self.ahead.as_millis() as u64);
        self.value = here + TTL.as_millis() as u64;
        let connection = &mut self.connection;
        let mut free: bool = redis::cmd("SETNX").arg(KEY).arg(self.value).query(connection).expect("an answer");
        let is_over = |value: Option<u64>| value.is_none_or(|value| value < here);
        if !free && is_over(redis::cmd("GET").arg(KEY).query(connection).expect("an answer")) {
            free = is_over(redis::cmd("GETSET").arg(KEY).arg(self.value).query(connection).expect("an answer"));
        }
        free.then(|| hold(&self.value.to_string(), sent / 1000, sent, sent + validity()))
    }

    fn release(&mut self) {
        let _: () =
            Script::new(GIVE_BACK).key(KEY).arg(0).arg(self.value).invoke(&mut self.connection).expect("an end");
    }
}
