-- force: free the lock, whoever owns it. For operators.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n
-- answer  0 n there was none | 1 n freed | 2 n freed, and handed over to the first waiter
-- A key of another type is an error (from GET) and stays: it is no lock.
local owner = redis.call('GET', KEYS[1])
if not owner then
  return '0 ' .. ARGV[1]
end
local whole, outcome = true, 'none'
if redis.pcall('EXISTS', KEYS[3]) == 1 then
  --< mint.lua
  --< pass_on.lua
  whole, outcome = pcall(pass_on, owner, false)
end
if whole and outcome == 'granted' then
  return '2 ' .. ARGV[1]
end
if redis.pcall('GET', KEYS[1]) == owner then
  redis.call('DEL', KEYS[1])
end
return '1 ' .. ARGV[1]
