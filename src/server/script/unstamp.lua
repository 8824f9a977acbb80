-- unstamp: free a lock of the timestamp protocol if its stamp is mine and not over.
-- KEYS    lock, fence, queue, waiters (all but the lock are left alone)
-- ARGV    n, stamp, ms of its unit, now ms ('': the server's clock)
-- answer  1 n released | 2 n mine, but over: left to whoever takes it | -1 n there was no lock | 0 n another's
-- One script, because between a look and a DEL the stamp could become another's. One that is over stays:
-- somebody may have read it, and be about to take it.
local value = redis.call('GET', KEYS[1])
-- Writes that change nothing, so that a demoted master says what it is.
if not value then
  redis.call('PEXPIRE', KEYS[1], '1')
  return '-1 ' .. ARGV[1]
end
if value ~= ARGV[2] then
  redis.call('RENAMENX', KEYS[1], KEYS[1])
  return '0 ' .. ARGV[1]
end
local time = redis.call('TIME')
local clock = tonumber(time[1] .. string.sub('00000' .. time[2], -6))
local unit = tonumber(ARGV[3])
local now = ARGV[4] == '' and math.floor(clock / 1000) or tonumber(ARGV[4])
if math.floor(now / unit) > tonumber(value) then
  redis.call('RENAMENX', KEYS[1], KEYS[1])
  return '2 ' .. ARGV[1]
end
redis.call('DEL', KEYS[1])
return '1 ' .. ARGV[1]
