//! The scripts alone, on every branch, by EVAL over a plain connection.

mod failing;
mod guarded;
mod leave;
mod pass_on;
mod release;
mod renew;
mod take;
mod wait;
mod waited;

use redis::{Connection, ErrorKind, RedisError, ServerErrorKind};

use crate::support::{Server, proxy::whole};

pub(crate) const TRY: &str = include_str!("../../../src/server/script/try.lua");
pub(crate) const WAIT: &str = include_str!("../../../src/server/script/wait.lua");
pub(crate) const RELEASE: &str = include_str!("../../../src/server/script/release.lua");
pub(crate) const LEAVE: &str = include_str!("../../../src/server/script/leave.lua");
pub(crate) const RENEW: &str = include_str!("../../../src/server/script/renew.lua");
pub(crate) const FORCE: &str = include_str!("../../../src/server/script/force.lua");

const DAY: i64 = 86_400_000;
const FENCE: &str = "distlock:fence:{k}";
const QUEUE: &str = "distlock:queue:{k}";
const WAITERS: &str = "distlock:waiters:{k}";

/// A server and a connection to it, on which a lock `k` is played with.
struct Desk {
    server: Server,
    connection: Connection,
    n: u64,
}

impl Desk {
    fn new() -> Desk {
        let server = Server::start();
        Desk { connection: server.connection(), server, n: 4710 }
    }

    /// One plain command.
    fn ask<T: redis::FromRedisValue>(&mut self, parts: &[&str]) -> T {
        let mut command = redis::cmd(parts[0]);
        command.arg(&parts[1..]);
        command.query(&mut self.connection).unwrap_or_else(|e| panic!("{parts:?}: {e}"))
    }

    fn try_run(&mut self, script: &str, args: &[&str]) -> Result<String, RedisError> {
        self.n += 1;
        let mut command = redis::cmd("EVAL");
        command.arg(whole(script)).arg(4).arg("k").arg(FENCE).arg(QUEUE).arg(WAITERS).arg(self.n).arg(args);
        let answer: String = command.query(&mut self.connection)?;
        // Every answer ends with the number of its call.
        let own = answer.strip_suffix(&format!(" {}", self.n));
        Ok(own.unwrap_or_else(|| panic!("{answer:?} does not end with {}", self.n)).to_owned())
    }

    /// A script's answer without its number.
    fn run(&mut self, script: &str, args: &[&str]) -> String {
        self.try_run(script, args).unwrap_or_else(|e| panic!("{args:?}: {e}"))
    }

    /// `try` with a hint of 0 and no limit; the fence and the stamp of a grant.
    fn held(&mut self, token: &str, ttl: &str) -> (u64, String) {
        let answer = self.run(TRY, &[token, ttl, "0", "0"]);
        let words: Vec<&str> = answer.split(' ').collect();
        assert_eq!((words[0], words.len()), ("held", 3), "{answer}");
        (words[1].parse().unwrap(), words[2].to_owned())
    }

    fn clock(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = self.ask(&["TIME"]);
        seconds * 1_000_000 + micros
    }

    fn owner(&mut self) -> Option<String> {
        self.ask(&["GET", "k"])
    }

    fn fence(&mut self) -> Option<String> {
        self.ask(&["GET", FENCE])
    }

    fn pttl(&mut self, key: &str) -> i64 {
        self.ask(&["PTTL", key])
    }

    fn set(&mut self, key: &str, value: &str) {
        let _: () = self.ask(&["SET", key, value, "PX", "30000"]);
    }

    /// Who waits, in the order of their places.
    fn queue(&mut self) -> Vec<String> {
        self.ask(&["ZRANGE", QUEUE, "0", "-1"])
    }

    fn places(&mut self) -> Vec<(String, u64)> {
        self.ask(&["ZRANGE", QUEUE, "0", "-1", "WITHSCORES"])
    }

    /// What a waiter said of itself.
    fn entry(&mut self, token: &str) -> Option<String> {
        self.ask(&["HGET", WAITERS, token])
    }

    /// Somebody who waits, said that it is back in `left` ms, and has the number 77.
    fn entrant(&mut self, token: &str, place: u64, left: u64, channel: &str) {
        let back_by = self.clock() / 1000 + left;
        let _: () = self.ask(&["ZADD", QUEUE, &place.to_string(), token]);
        let _: () = self.ask(&["HSET", WAITERS, token, &format!("{back_by} 77 {channel}")]);
    }

    /// From now on asks as a user with all rights but these.
    fn login(&mut self, user: &str, rights: &str) {
        let mut command = vec!["ACL", "SETUSER", user, "on", "nopass", "~*", "&*", "+@all"];
        command.extend(rights.split(' '));
        self.server.ask::<()>(&command);
        let _: () = self.ask(&["AUTH", user, "x"]);
    }

    /// The key holds something that is no string.
    fn list(&mut self, key: &str) {
        let _: () = self.ask(&["DEL", key]);
        let _: () = self.ask(&["RPUSH", key, "a list"]);
    }
}

/// A subscription.
struct Ear(Connection);

impl Ear {
    fn new(desk: &Desk, channel: &str) -> Ear {
        let mut ear = Ear(desk.server.connection());
        ear.0.send_packed_command(&redis::cmd("SUBSCRIBE").arg(channel).get_packed_command()).unwrap();
        let (subscribed, _, _): (String, String, u64) =
            redis::from_redis_value(ear.0.recv_response().unwrap()).unwrap();
        assert_eq!(subscribed, "subscribe");
        ear
    }

    fn hear(&mut self) -> String {
        let (_, _, text): (String, String, String) = redis::from_redis_value(self.0.recv_response().unwrap()).unwrap();
        text
    }
}

fn is_wrong_type(e: &RedisError) -> bool {
    e.code() == Some("WRONGTYPE") || e.to_string().contains("WRONGTYPE")
}

fn is_read_only(e: &RedisError) -> bool {
    e.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) || e.to_string().contains("READONLY")
}
