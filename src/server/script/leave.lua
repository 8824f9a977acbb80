-- leave: take an acquisition back, whether it waits, holds, or never got here.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n, token, fence ('': whatever it is), not_after µs (0: none)
-- answer  1 | -1 | 0 as release, then 1 if no attempt of it can be accepted any more, else 0, then n
-- One script, because an attempt executed between the steps would leave a lock that nobody knows of.
redis.pcall('ZREM', KEYS[3], ARGV[2])
redis.pcall('HDEL', KEYS[4], ARGV[2])
local owner = redis.pcall('GET', KEYS[1])
local answer
if owner == ARGV[2] then
  -- A lease that is another of the same token (taken again by a late attempt) is left alone.
  if ARGV[3] ~= '' and redis.pcall('GET', KEYS[2]) ~= ARGV[3] then
    redis.call('RENAMENX', KEYS[1], KEYS[1])
    answer = '0 '
  else
    redis.pcall('EXISTS', KEYS[3])
    redis.call('DEL', KEYS[1])
    answer = '1 '
  end
elseif type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
  return owner
elseif owner then
  redis.call('RENAMENX', KEYS[1], KEYS[1])
  answer = '0 '
else
  redis.call('PEXPIRE', KEYS[1], '1')
  answer = '-1 '
end
local time = redis.call('TIME')
local over = tonumber(time[1] .. string.sub('00000' .. time[2], -6)) > tonumber(ARGV[4])
return answer .. (over and '1 ' or '0 ') .. ARGV[1]
