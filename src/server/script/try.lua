-- try: take the lock if it is free; again "held" if it is mine already.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n, token, ttl ms, hint, not_after µs (0: none)
-- answer  held <fence> <clock> n | taken <pttl> <hands over> <µs> n | late <µs> n
-- One script, because the look at the owner, the fence and the SET must be one step. The fence is
-- stored before the lock: scripts do not roll back, and a lock without a fence must not exist.
local owner = redis.call('GET', KEYS[1])
local mine = owner == ARGV[2]
if mine then
  -- A write either way and before all else, so that a replica refuses; never shortens.
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[3]) then
    redis.call('RENAMENX', KEYS[1], KEYS[1])
  else
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
end
local time = redis.call('TIME')
local clock = time[1] .. string.sub('00000' .. time[2], -6)
if owner and not mine then
  local start = string.sub(owner, 1, 3)
  local hands_over = start == 'd1.' and '1' or start == 'd0.' and '0' or '-1'
  return 'taken ' .. string.format('%.0f', redis.call('PTTL', KEYS[1])) .. ' ' .. hands_over .. ' ' .. clock .. ' ' .. ARGV[1]
end
local now, hint, not_after = tonumber(clock), tonumber(ARGV[4]), tonumber(ARGV[5])
if not mine and not_after > 0 and now > not_after then
  return 'late ' .. clock .. ' ' .. ARGV[1]
end
local stored = redis.call('GET', KEYS[2])
local last = 0
if stored and #stored <= 16 and not string.find(stored, '%D') then
  last = tonumber(stored) or 0
  if last >= 9007199254740992 then last = 0 end
end
local fence, stamp
if mine and last > hint and last > 0 and hint >= 0 then
  fence, stamp = stored, clock
else
  if now > last + 16 and now > hint then
    fence, stamp = clock, '1'
  else
    -- Only here a number becomes text, and tostring would lose digits.
    fence, stamp = string.format('%.0f', math.max(now, last + 17, hint + 1)), clock
  end
  redis.call('SET', KEYS[2], fence, 'PX', 86400000)
end
if not mine then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 'held ' .. fence .. ' ' .. stamp .. ' ' .. ARGV[1]
