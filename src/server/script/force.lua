-- force: free the lock, whoever owns it. For operators.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n
-- answer  0 n there was none | 1 n freed
-- A key of another type is an error (from GET) and stays: it is no lock.
local owner = redis.call('GET', KEYS[1])
if not owner then
  return '0 ' .. ARGV[1]
end
redis.pcall('EXISTS', KEYS[3])
redis.call('DEL', KEYS[1])
return '1 ' .. ARGV[1]
