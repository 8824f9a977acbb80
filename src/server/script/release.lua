-- release: delete the lock if it is mine.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n, token
-- answer  1 n released | -1 n there was no lock | 0 n another's
-- One script, because between a look and a DEL the lock could expire and become another's. Nothing
-- that is wrong with a helper key may keep the lock, so the queue is asked under pcall.
local owner = redis.pcall('GET', KEYS[1])
if owner == ARGV[2] then
  redis.pcall('EXISTS', KEYS[3])
  redis.call('DEL', KEYS[1])
  return '1 ' .. ARGV[1]
end
if type(owner) == 'table' and not string.find(owner.err, 'WRONGTYPE', 1, true) then
  return owner
end
-- A write that changes nothing: a demoted master must answer READONLY, not "lost".
if owner then
  redis.call('RENAMENX', KEYS[1], KEYS[1])
  return '0 ' .. ARGV[1]
end
redis.call('PEXPIRE', KEYS[1], '1')
return '-1 ' .. ARGV[1]
