-- probe: try every command that the scripts need, so that a missing right shows at start.
-- KEYS    a lock key that nobody uses, and its helpers
-- ARGV    n
-- answer  <version, or ? where the server does not tell> n; a refused command is the error
-- One script, because a left-over of it would look like a lock. Nothing outlives it.
redis.call('TIME')
redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000)
redis.call('GET', KEYS[1])
redis.call('PTTL', KEYS[1])
redis.call('PEXPIRE', KEYS[1], 1000)
redis.call('RENAMENX', KEYS[1], KEYS[1])
redis.call('SET', KEYS[2], '1', 'PX', 1000)
redis.call('EXISTS', KEYS[3])
redis.call('DEL', KEYS[1])
redis.call('DEL', KEYS[2])
return tostring(redis.REDIS_VERSION or '?') .. ' ' .. ARGV[1]
