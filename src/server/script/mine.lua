-- The first part of a guarded write: goes on only if the lock is still this lease's.
-- KEYS    lock, fence, queue, waiters, then the user's
-- ARGV    n, token, fence of the guard, then the user's
-- answer  0 n another's, or another lease of this token | -1 n gone; else what the second part says
-- One script with the user's part, because a lock can be lost between a look and a write.
local keys_from = 5
local owner = redis.pcall('GET', KEYS[1])
if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
  return owner
end
if not owner then
  -- A write that changes nothing, so that a replica says what it is.
  redis.call('PEXPIRE', KEYS[1], '1')
  return '-1 ' .. ARGV[1]
end
local stored = owner == ARGV[2] and redis.call('GET', KEYS[2])
if owner ~= ARGV[2] or (stored and #stored <= 16 and not string.find(stored, '%D')
    and tonumber(stored) < 9007199254740992 and tonumber(stored) > tonumber(ARGV[3])) then
  redis.call('RENAMENX', KEYS[1], KEYS[1])
  return '0 ' .. ARGV[1]
end
