-- renew: the full ttl once more if the lock is mine; never less than what is left.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n, token, ttl ms, fence ('': not compared), again µs (0: a lock that is gone stays gone)
-- answer  1 n renewed | 0 n another's, or another lease of this token | -1 n gone
-- One script, because a PEXPIRE after a look could prolong another's lock.
local owner = redis.pcall('GET', KEYS[1])
if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
  return owner
end
local function raise_fence()
  if ARGV[4] == '' then return false end
  local stored = redis.call('GET', KEYS[2])
  local last = -1
  if stored and #stored <= 16 and not string.find(stored, '%D') then
    last = tonumber(stored) or -1
    if last >= 9007199254740992 then last = -1 end
  end
  local fence = tonumber(ARGV[4])
  if last > fence then return true end
  if last < fence then redis.call('SET', KEYS[2], ARGV[4], 'PX', '86400000') end
  return false
end
if owner == ARGV[2] then
  -- Written first, so that a replica refuses before anything is judged.
  redis.call('RENAMENX', KEYS[1], KEYS[1])
  if raise_fence() then return '0 ' .. ARGV[1] end
  if redis.call('PTTL', KEYS[1]) <= tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  return '1 ' .. ARGV[1]
end
if owner then
  redis.call('RENAMENX', KEYS[1], KEYS[1])
  return '0 ' .. ARGV[1]
end
redis.call('PEXPIRE', KEYS[1], '1')
local again = tonumber(ARGV[5])
if again > 0 then
  local time = redis.call('TIME')
  if tonumber(time[1] .. string.sub('00000' .. time[2], -6)) <= again then
    raise_fence()
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return '1 ' .. ARGV[1]
  end
end
return '-1 ' .. ARGV[1]
