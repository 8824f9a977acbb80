-- A part of scripts that make somebody the owner. PROTOCOL: a fence is the first of a block of 17.
local function clock_now()
  local time = redis.call('TIME')
  return time[1] .. string.sub('00000' .. time[2], -6)
end
-- A new fence above `hint`, as text, and the server's µs. Stored before the lock is written: scripts do
-- not roll back. What is not 1 to 16 digits with room for a block below 2^53 counts as 0.
local function mint(hint)
  local clock = clock_now()
  local now, last = tonumber(clock), 0
  local stored = redis.call('GET', KEYS[2])
  if stored and #stored <= 16 and not string.find(stored, '%D') then
    last = tonumber(stored) or 0
    if last >= 9007199254740959 then last = 0 end
  end
  local fence = clock
  if not (now > last + 16 and now > hint) then
    -- tostring would lose digits.
    fence = string.format('%.0f', math.max(now, last + 17, hint + 1))
  end
  redis.call('SET', KEYS[2], fence, 'PX', '86400000')
  return fence, clock
end
