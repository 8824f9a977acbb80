-- leave: take an acquisition back, whether it waits, holds, or never got here.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n, token, fence ('': whatever it is), not_after µs (0: none)
-- answer  1 | 2 | 3 | -1 | 0 as release, then 1 if no attempt of it can be accepted any more, else 0, then n
-- One script, because an attempt executed between the steps would leave a lock that nobody knows of.
redis.pcall('ZREM', KEYS[3], ARGV[2])
redis.pcall('HDEL', KEYS[4], ARGV[2])
local owner = redis.pcall('GET', KEYS[1])
local mine = owner == ARGV[2]
if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
  return owner
end
local answer
-- A lease that is another of the same token (taken again by a late attempt) is left alone.
if (owner and not mine) or (mine and ARGV[3] ~= '' and redis.pcall('GET', KEYS[2]) ~= ARGV[3]) then
  redis.call('RENAMENX', KEYS[1], KEYS[1])
  answer = '0 '
else
  -- As in release.
  if not owner then redis.call('PEXPIRE', KEYS[1], '1') end
  local whole, outcome = true, 'none'
  if redis.pcall('EXISTS', KEYS[3]) == 1 then
    --< mint.lua
    --< pass_on.lua
    whole, outcome = pcall(pass_on, ARGV[2], false)
  end
  if not owner then
    answer = '-1 '
  elseif whole and outcome == 'granted' then
    answer = '2 '
  else
    if redis.pcall('GET', KEYS[1]) == ARGV[2] then redis.call('DEL', KEYS[1]) end
    answer = whole and outcome == 'denied' and '3 ' or '1 '
  end
end
local time = redis.call('TIME')
local over = tonumber(time[1] .. string.sub('00000' .. time[2], -6)) > tonumber(ARGV[4])
return answer .. (over and '1 ' or '0 ') .. ARGV[1]
