-- stamp: take a lock of the timestamp protocol if it is free, or if its stamp is over.
-- KEYS    lock, fence, queue, waiters (all but the lock are left alone)
-- ARGV    n, stamp, ms of its unit (1 or 1000), now ms ('': the server's clock), ms that must be left of the
--         stamp, expires (1: the key goes with its stamp), not_after µs
-- answer  held <ms left of the stamp> <µs> n | taken <ms left, -1 for ever> <µs> n | late <µs> n
-- One script, because between SETNX, GET and GETSET others come: two would find the same old stamp, and the
-- second would overwrite the first one's. Whose answer of GETSET is an old stamp has the lock: here that
-- answer is known before the stamp is written, so a loser writes none. It says nothing of who wrote a stamp:
-- one that is equal to mine is another's. A value that is no number is of somebody who does not speak this
-- protocol, and is never over by itself. A key of another type is an error (from GET).
local value = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
local clock = time[1] .. string.sub('00000' .. time[2], -6)
local unit, stamp = tonumber(ARGV[3]), tonumber(ARGV[2])
local now = ARGV[4] == '' and math.floor(tonumber(clock) / 1000) or tonumber(ARGV[4])
local left = stamp * unit - now
if tonumber(clock) > tonumber(ARGV[7]) or left < tonumber(ARGV[5]) then
  return 'late ' .. clock .. ' ' .. ARGV[1]
end
if value then
  local number = string.match(value, '^%d+%.?%d*$') and tonumber(value)
  -- By the whole unit, as those judge who know no finer one.
  if not number or math.floor(now / unit) <= number then
    local others, pttl = -1, redis.call('PTTL', KEYS[1])
    if number then others = math.min(number * unit + unit - now, 9007199254740991) end
    if pttl >= 0 and (others < 0 or pttl < others) then others = pttl end
    return 'taken ' .. string.format('%.0f', others) .. ' ' .. clock .. ' ' .. ARGV[1]
  end
end
if ARGV[6] == '1' then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', string.format('%.0f', left))
else
  redis.call('SET', KEYS[1], ARGV[2])
end
return 'held ' .. string.format('%.0f', left) .. ' ' .. clock .. ' ' .. ARGV[1]
