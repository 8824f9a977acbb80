-- release: hand the lock over, or delete it, if it is mine.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n, token
-- answer  1 n released | 2 n handed over | 3 n released, PUBLISH refused | -1 n there was no lock
--         | 0 n another's
-- One script, because between a look and a DEL the lock could expire and become another's, and between
-- the release and a grant a newcomer could take it. Nothing that is wrong with a helper key may keep the
-- lock, so all that is done with them is protected.
local owner = redis.pcall('GET', KEYS[1])
local mine = owner == ARGV[2]
local queued = redis.pcall('EXISTS', KEYS[3]) == 1
-- All that the uncontended release pays for the queue.
if mine and not queued then
  redis.call('DEL', KEYS[1])
  return '1 ' .. ARGV[1]
end
if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
  return owner
end
-- A write that changes nothing: a demoted master must answer READONLY, not "lost".
if owner and not mine then
  redis.call('RENAMENX', KEYS[1], KEYS[1])
  return '0 ' .. ARGV[1]
end
if not owner then
  redis.call('PEXPIRE', KEYS[1], '1')
  if not queued then return '-1 ' .. ARGV[1] end
end
--< mint.lua
--< pass_on.lua
local whole, outcome = pcall(pass_on, ARGV[2], false)
if not owner then return '-1 ' .. ARGV[1] end
if whole and outcome == 'granted' then return '2 ' .. ARGV[1] end
if redis.pcall('GET', KEYS[1]) == ARGV[2] then
  redis.call('DEL', KEYS[1])
end
return (whole and outcome == 'denied' and '3 ' or '1 ') .. ARGV[1]
