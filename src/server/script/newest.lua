-- The first part of a write through a fence gate: goes on only if no higher fence was seen there.
-- KEYS    gate, then the user's
-- ARGV    n, not used, fence, then the user's
-- answer  stale, the highest fence seen, n; else what the second part says
-- One script with the user's part, because a higher fence can come between a look and a write.
local keys_from = 2
local seen = redis.call('GET', KEYS[1])
if seen then
  if seen == '' or #seen > 16 or string.find(seen, '%D') then
    return redis.error_reply('WRONGTYPE The key of the gate holds no fence')
  end
  if tonumber(seen) > tonumber(ARGV[3]) then
    return 'stale ' .. seen .. ' ' .. ARGV[1]
  end
end
if seen ~= ARGV[3] then
  redis.call('SET', KEYS[1], ARGV[3], 'KEEPTTL')
end
