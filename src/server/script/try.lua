-- try: take the lock if it is free; again "held" if it is mine already.
-- KEYS    lock, fence, queue, waiters
-- ARGV    n, token, ttl ms, hint, not_after µs (0: none); a hint of -1 resumes: always a new fence, and
--         never a lock that is free. A late copy of it must not take the hold from the guard of a retry.
-- answer  held <fence> <clock> n | taken <pttl> <hands over> <µs> n | late <µs> n
-- One script, because the look at the owner, the fence and the SET must be one step. The fence is
-- stored before the lock: scripts do not roll back, and a lock without a fence must not exist.
-- This is the hot path: globals are looked up once, and in the plain case no number becomes text.
local call, keys, args = redis.call, KEYS, ARGV
local owner = call('GET', keys[1])
local mine = owner == args[2]
if mine then
  -- A write either way and before all else, so that a replica refuses; never shortens.
  if call('PTTL', keys[1]) > tonumber(args[3]) then
    call('RENAMENX', keys[1], keys[1])
  else
    call('PEXPIRE', keys[1], args[3])
  end
end
local time = call('TIME')
local micros = time[2]
if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
local clock = time[1] .. micros
if owner and not mine then
  local start = string.sub(owner, 1, 3)
  local hands_over = start == 'd1.' and '1' or start == 'd0.' and '0' or '-1'
  local pttl = string.format('%.0f', call('PTTL', keys[1]))
  return 'taken ' .. pttl .. ' ' .. hands_over .. ' ' .. clock .. ' ' .. args[1]
end
local now, hint, not_after = tonumber(clock), tonumber(args[4]), tonumber(args[5])
local late = not_after > 0 and now > not_after
if late and not mine or hint < 0 and (late or not mine) then
  return 'late ' .. clock .. ' ' .. args[1]
end
local stored = call('GET', keys[2])
local last = tonumber(stored) or 0
local fence, stamp = clock, '1'
if mine or not (now > last + 16 and now > hint) then
  -- What is not 1 to 16 digits, or leaves no room for a block below 2^53, counts as 0: tonumber takes
  -- inf, 1e300 and hex, too.
  if not stored or #stored > 16 or string.find(stored, '%D') or last >= 9007199254740959 then
    last = 0
  end
  if mine and last > 0 and last > hint and hint >= 0 then
    return 'held ' .. stored .. ' ' .. clock .. ' ' .. args[1]
  end
  if not (now > last + 16 and now > hint) then
    -- tostring would lose digits.
    fence, stamp = string.format('%.0f', math.max(now, last + 17, hint + 1)), clock
  end
end
call('SET', keys[2], fence, 'PX', '86400000')
if not mine then
  call('SET', keys[1], args[2], 'PX', args[3])
end
return 'held ' .. fence .. ' ' .. stamp .. ' ' .. args[1]
