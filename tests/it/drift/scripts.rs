//! Scripts: what they are given, what they may do, what becomes of their answers and errors.

use super::Pair;

/// Scripts that run alike on both, with two keys and two arguments.
fn same(scripts: &[&str]) {
    let Some(mut pair) = Pair::new(1) else { return };
    pair.table("rpush list a");
    for script in scripts {
        pair.same(0, &[b"EVAL", script.as_bytes(), b"2", b"k", b"list", b"7", b"a\0\r\nb"], 1);
    }
}

#[test]
fn answers_of_scripts_become_the_answers_of_redis() {
    same(&[
        "return 1",
        "return 1.9",
        "return -2.7",
        "return 9007199254740991",
        "return 1/0",
        "return 'text'",
        "return ''",
        "return true",
        "return false",
        "return nil",
        "return",
        "",
        "return {}",
        "return {1, 2.9, 'a', nil, 3}",
        "return {1, {2, false, true}, {ok = 'fine'}, {err = 'OH no'}}",
        "return {ok = 'fine', 1, 2}",
        "return {err = 'OH no', 1, 2}",
        "return {ok = 1}",
        "return redis.status_reply('FINE')",
        "return redis.error_reply('OH no')",
        "return redis.error_reply('-OH no')",
        "return redis.error_reply('oh')",
        "return {KEYS, ARGV, #KEYS, #ARGV}",
        "return ARGV[1] + 1",
        "return string.format('%.0f', 1764547200000000)",
        "return tostring(1764547200000000)",
        "return tostring(2^53)",
        "return string.sub('00000' .. 12, -6) .. ('x'):upper() .. table.concat({1, 2}, ',') .. math.max(1, 3)",
        "local t = {} for word in string.gmatch('a b', '%a') do t[#t + 1] = word end return t",
        "return {tonumber('0x10'), tonumber('1e3'), tonumber('x'), 5}",
        "return _G == _G and type(_G) .. type(redis.call) .. _VERSION",
    ]);
}

#[test]
fn commands_of_scripts_answer_as_in_redis() {
    same(&[
        "return redis.call('SET', KEYS[1], ARGV[2])",
        "return redis.call('SET', KEYS[1], 'x', 'NX')",
        "return redis.call('SET', KEYS[1], ARGV[2], 'PX', 100000).ok",
        "return redis.call('get', KEYS[1]) == ARGV[2]",
        "return redis.call('GET', 'none') == false",
        "return type(redis.call('TTL', KEYS[1]))",
        "redis.call('SET', KEYS[1], 3) return redis.call('GET', KEYS[1])",
        "redis.call('SET', KEYS[1], 0.1) return redis.call('GET', KEYS[1])",
        "redis.call('SET', KEYS[1], 1764547200000000) return redis.call('GET', KEYS[1])",
        "return redis.call('LRANGE', KEYS[2], 0, -1)",
        "return redis.call('ZADD', 'z', 1764547200000000, 'a')",
        "return redis.call('ZRANGE', 'z', -1, -1, 'WITHSCORES')",
        "return #redis.call('ZPOPMIN', 'none')",
        "return redis.call('ZPOPMIN', 'z')[2] + 1",
        "redis.call('PEXPIRE', KEYS[1], 1234) return redis.call('PTTL', KEYS[1])",
        "redis.call('PEXPIRE', KEYS[1], 0) return redis.call('EXISTS', KEYS[1])",
        "return redis.call('RENAMENX', KEYS[2], KEYS[2])",
        "return redis.call('PING')",
        "return redis.call('ECHO', 'x')",
        "return #redis.call('TIME')",
        "return redis.call('TYPE', KEYS[2]).ok",
        "redis.call('ZADD', 'q', 'NX', 2, 'b')
         redis.call('ZADD', 'q', 'NX', 1, 'a')
         redis.call('HSET', 'w', 'b', '1764547200000 4 channel')
         local head = redis.call('ZPOPMIN', 'q')
         return {head, redis.call('HGET', 'w', head[1]), redis.call('HDEL', 'w', head[1], 'b'),
             redis.call('PUBSUB', 'NUMSUB', 'channel'), redis.call('PUBLISH', 'channel', 'm'),
             redis.call('ZRANK', 'q', 'b'), redis.call('PEXPIRE', 'q', 10000), redis.call('EXISTS', 'w')}",
    ]);
}

#[test]
fn errors_in_scripts_are_those_of_redis() {
    same(&[
        "return redis.call('GET', KEYS[2])",
        "\n\nlocal function f()\n  return redis.call('GET', KEYS[2])\nend\nlocal x = f()\nreturn x",
        "return redis.pcall('GET', KEYS[2])",
        "return redis.pcall('GET', KEYS[2]).err",
        "return redis.call('NOTHING')",
        "return redis.pcall('NOTHING').err",
        "return redis.call('GET')",
        "return redis.pcall('GET').err",
        "return redis.call()",
        "return redis.call({})",
        "return redis.call('GET', true)",
        "return redis.call('SUBSCRIBE', 'x')",
        "return redis.call('EVAL', 'return 1', 0)",
        "return redis.call('AUTH', 'x')",
        "return redis.call('CLIENT', 'ID')",
        "return redis.call('INCR', KEYS[2])",
        "redis.call('SET', KEYS[1], 'half done') return redis.call('GET', KEYS[2])",
        "return redis.call('GET', KEYS[1])",
        "error('boom')",
        "error('boom', 0)",
        "error({err = 'MY own'})",
        "error()",
        "return nil .. 'x'",
        "return pcall(redis.call, 'GET', KEYS[2])",
        "return {pcall(redis.call, 'GET', KEYS[2])}",
        "local ok, e = pcall(redis.call, 'GET', KEYS[2]) return {type(e), e}",
        "local ok, e = pcall(error, 'x') return {ok, e}",
        "local ok, e = pcall(function() return 1, nil, 3 end) return {ok, e}",
        "local ok, e = pcall(function() error('x') end) return e",
        "x y",
        "return (",
        "return 'open",
    ]);
}

#[test]
fn scripts_are_fenced_in_as_in_redis() {
    same(&[
        "return foo",
        "return _G.foo",
        "foo = 1",
        "_G.foo = 1",
        "string.foo = 1",
        "redis.call = 1",
        "string = nil",
        "KEYS[1] = 'other' ARGV = nil",
        "KEYS[1] = 'other' return KEYS[1]",
        "return print('x')",
        "return dofile('x')",
        "return require('x')",
        "return io.open('x')",
        "return os.getenv('PATH')",
        "return debug.getinfo(1)",
    ]);
}

#[test]
fn scripts_are_kept_by_their_digest_as_in_redis() {
    const DIGEST: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"; // return 1
    let return_one: [&[u8]; 3] = [b"SCRIPT", b"LOAD", b"return 1"];
    let Some(mut pair) = Pair::new(1) else { return };
    pair.table(&format!(
        "evalsha {DIGEST} 0
         script exists {DIGEST}"
    ));
    pair.same(0, &return_one, 1);
    pair.table(&format!(
        "evalsha {DIGEST} 0
         EVALSHA {} 1 k a
         script exists {DIGEST} x
         script flush what
         script flush
         evalsha {DIGEST} 0
         script flush async
         script load return·(
         script load
         script what
         script
         evalsha x
         evalsha x 0
         eval return·1 x
         eval return·1 -1
         eval return·1 2 k
         eval",
        DIGEST.to_uppercase(),
    ));
    // EVAL makes a script known, too.
    pair.table(&format!(
        "eval return·1 0
         evalsha {DIGEST} 0"
    ));
}
