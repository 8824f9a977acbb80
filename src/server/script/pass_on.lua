-- A part of scripts that free a lock or find it free: the first waiter that is alive becomes its owner.
-- How many connections of this very server listen to a channel; nil where that cannot be asked.
local function listeners(channel)
  local answer = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return not answer.err and tonumber(answer[2]) or nil
end
-- The waiter `token`, found at `place`, becomes the owner until the time by which it said it would be
-- back. A message is sent for a grant that stands; one that cannot be announced is taken back, since it
-- would idle until its waiter's next poll.
local function grant(token, place, waiter, number, channel, left)
  local fence = mint(0)
  local px = string.format('%.0f', math.min(math.max(left, 300), 2000))
  redis.call('SET', KEYS[1], token, 'PX', px)
  if channel == '' then return 'granted' end
  local message = number .. ' ' .. px .. ' ' .. fence .. ' ' .. token .. ' ' .. KEYS[1]
  local sent = redis.pcall('PUBLISH', channel, message)
  if type(sent) ~= 'table' then return 'granted' end
  redis.call('DEL', KEYS[1])
  redis.call('ZADD', KEYS[3], place, token)
  redis.call('PEXPIRE', KEYS[3], '10000')
  redis.call('HSET', KEYS[4], token, waiter)
  redis.call('PEXPIRE', KEYS[4], '10000')
  return 'denied'
end
-- "granted", "none" waits, "self" is first, "denied", or "more": as many dead as one call clears.
local function pass_on(me, stop_at_me)
  local now = math.floor(tonumber(clock_now()) / 1000)
  for _ = 1, 100 do
    local first = redis.call('ZPOPMIN', KEYS[3])
    local token = first[1]
    if not token then return 'none' end
    local waiter = redis.call('HGET', KEYS[4], token)
    redis.call('HDEL', KEYS[4], token)
    if token == me then
      if stop_at_me then return 'self' end
    elseif waiter then
      local back_by, number, channel = string.match(waiter, '^(%d+) (%d+) (.*)$')
      local left = back_by and tonumber(back_by) - now or 0
      if left > 0 and (channel == '' or listeners(channel) ~= 0) then
        return grant(token, first[2], waiter, number, channel, left)
      end
    end
  end
  return 'more'
end
