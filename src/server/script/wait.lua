-- wait: take the lock if it is free and nobody is before me; else stay in its queue.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n, token, ttl ms, hint, not_after µs (0: none), place (0: none yet), beat ms (0: last attempt),
--         channel ('': I look by myself)
-- answer  held <fence> <µs> n | late <µs> n
--         | queued <pttl> <hands over> <rank, -1 none> <place> <again> <push> <back> <µs> n
-- One script, because the lock could be freed between the look and the entry: then nobody would hand it
-- over to me. A key of another type is an error (from GET). Each call heals the queue: a lock that is free
-- goes to whoever is first.
local owner = redis.call('GET', KEYS[1])
local token, ttl, hint, beat, channel = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[7]), ARGV[8]
local function forget()
  redis.call('ZREM', KEYS[3], token)
  redis.call('HDEL', KEYS[4], token)
end
--< mint.lua
--< pass_on.lua
local function held(fence, clock)
  return 'held ' .. fence .. ' ' .. clock .. ' ' .. ARGV[1]
end
local function take()
  local fence, clock = mint(hint)
  redis.call('SET', KEYS[1], token, 'PX', ttl)
  return held(fence, clock)
end
if owner == token then
  -- A write either way and before all else, so that a replica refuses; never shortens.
  if redis.call('PTTL', KEYS[1]) > tonumber(ttl) then
    redis.call('RENAMENX', KEYS[1], KEYS[1])
  else
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
  forget()
  local stored = redis.call('GET', KEYS[2])
  if stored and #stored <= 16 and not string.find(stored, '%D') and tonumber(stored)
    and tonumber(stored) > hint and tonumber(stored) < 9007199254740959 then
    return held(stored, clock_now())
  end
  return held(mint(hint))
end
local clock, not_after = clock_now(), tonumber(ARGV[5])
if not_after > 0 and tonumber(clock) > not_after then
  if beat == 0 then forget() end
  return 'late ' .. clock .. ' ' .. ARGV[1]
end
if not owner and redis.call('EXISTS', KEYS[3]) == 0 then
  return take()
end
local back = '0'
if beat > 0 then
  -- First, so that whoever is queued is refreshed also when memory is full.
  redis.call('PEXPIRE', KEYS[3], '10000')
  local place = ARGV[6]
  if place == '0' then
    local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
    place = clock
    if last and tonumber(last) >= tonumber(clock) then place = string.format('%.0f', tonumber(last) + 1) end
  end
  if redis.call('ZADD', KEYS[3], 'NX', place, token) == 1 and ARGV[6] ~= '0' then back = '1' end
  redis.call('PEXPIRE', KEYS[3], '10000')
  if channel ~= '' and (listeners(channel) or 0) == 0 then channel = '' end
  -- Calls that were given up may be executed out of order: a number never goes back.
  local number, before = ARGV[1], redis.call('HGET', KEYS[4], token)
  before = before and string.match(before, '^%d+ (%d+) ')
  if before and tonumber(before) > tonumber(number) then number = before end
  local back_by = string.format('%.0f', math.floor(tonumber(clock) / 1000) + beat)
  redis.call('HSET', KEYS[4], token, back_by .. ' ' .. number .. ' ' .. channel)
  redis.call('PEXPIRE', KEYS[4], '10000')
end
local again = '0'
if not owner then
  local outcome = pass_on(token, true)
  if outcome == 'self' or outcome == 'none' then return take() end
  if outcome == 'more' then again = '1' end
end
if beat == 0 and again == '0' then forget() end
local now = redis.call('GET', KEYS[1])
local start = now and string.sub(now, 1, 3)
local hands_over = start == 'd1.' and '1' or (not now or start == 'd0.') and '0' or '-1'
local pttl = string.format('%.0f', redis.call('PTTL', KEYS[1]))
local rank = redis.call('ZRANK', KEYS[3], token)
-- A score's own text may have an exponent.
local place = string.format('%.0f', tonumber(redis.call('ZSCORE', KEYS[3], token) or '0'))
return 'queued ' .. pttl .. ' ' .. hands_over .. ' ' .. (rank and string.format('%.0f', rank) or '-1')
  .. ' ' .. place .. ' ' .. again
  .. ' ' .. ((beat > 0 and channel ~= '') and '1' or '0') .. ' ' .. back .. ' ' .. clock .. ' ' .. ARGV[1]
