//! What a lock protects: a number on a server of its own, which accepts a fence that is not below the
//! highest that it has seen, and writes down what it accepted.

use redis::{Connection, Script};

use super::Server;

/// KEYS number; ARGV fence, new value ('': only read). The answer is the value, or nil: refused.
const ACCESS: &str = "
local highest = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < highest then return false end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[1], 'value', ARGV[2])
  redis.call('RPUSH', KEYS[1] .. ' accepted', ARGV[1] .. ' ' .. ARGV[2])
end
return redis.call('HGET', KEYS[1], 'value') or '0'
";

pub(crate) struct Resource {
    connection: Connection,
    access: Script,
}

impl Resource {
    pub(crate) fn at(url: &str) -> Resource {
        let connection = redis::Client::open(url).expect("an address").get_connection().expect("a connection");
        Resource { connection, access: Script::new(ACCESS) }
    }

    /// The number; none if the fence is refused. A read shows its fence, too: else two could read the
    /// same number, and both be right in writing the next.
    pub(crate) fn read(&mut self, number: &str, fence: u64) -> Option<u64> {
        self.access(number, fence, "")
    }

    pub(crate) fn write(&mut self, number: &str, fence: u64, value: u64) -> Option<u64> {
        self.access(number, fence, &value.to_string())
    }

    fn access(&mut self, number: &str, fence: u64, value: &str) -> Option<u64> {
        let mut call = self.access.key(number);
        call.arg(fence).arg(value).invoke(&mut self.connection).expect("a resource that answers")
    }
}

/// What was accepted, in order: fence and value.
pub(crate) fn accepted(server: &Server, number: &str) -> Vec<(u64, u64)> {
    let lines: Vec<String> = server.ask(&["LRANGE", &format!("{number} accepted"), "0", "-1"]);
    let pair = |line: &String| {
        let (fence, value) = line.split_once(' ')?;
        Some((fence.parse().ok()?, value.parse().ok()?))
    };
    lines.iter().map(|line| pair(line).expect("two numbers")).collect()
}
