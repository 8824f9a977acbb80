-- What scripts see: the functions of `redis`, and globals that cannot be changed. Run once, at start.
-- Given    command(...): executes one, errors come back as {err = text}; raising(f): f, but such an answer is
--          raised; raised(e): the text of what that raised, else nil; line(): where the script stands; version
-- Returns  run(script, keys, args): true and what it returns, or false and {err = text, line = n}
local command, raising, raised, line, version = ...

local function refuse()
  error('Attempt to modify a readonly table', 2)
end

local function read_only(content, missing)
  return setmetatable({}, { __index = missing or content, __newindex = refuse, __metatable = false })
end

-- Numbers as Redis writes them; nothing else is a word of a command.
local function call(...)
  local words = { ... }
  if select('#', ...) == 0 then
    return { err = 'ERR Please specify at least one argument for this redis lib call' }
  end
  for i = 1, select('#', ...) do
    if type(words[i]) == 'number' then
      words[i] = string.format('%.17g', words[i])
    elseif type(words[i]) ~= 'string' then
      return { err = 'ERR Lua redis lib command arguments must be strings or integers' }
    end
  end
  return command(unpack(words))
end

-- `redis.call` is no Lua function: `return redis.call(…)` would be a tail call, and the script's line lost.
local redis = { REDIS_VERSION = version, call = raising(call), pcall = call }

function redis.status_reply(text)
  return { ok = text }
end

function redis.error_reply(text)
  local plain = string.gsub(text, '^%-', '')
  return { err = string.find(plain, ' ', 1, true) and plain or 'ERR ' .. plain }
end

function redis.log() end

-- The text of an error, if it is one of redis.call or {err = text}.
local function text_of(problem)
  return raised(problem) or type(problem) == 'table' and problem.err
end

-- A script that catches such an error gets its text.
local function catch(...)
  local outcome = { pcall(...) }
  if not outcome[1] then
    outcome[2] = text_of(outcome[2]) or outcome[2]
  end
  return unpack(outcome, 1, table.maxn(outcome))
end

local globals = { redis = read_only(redis), pcall = catch, _VERSION = _VERSION }
for _, name in ipairs({ 'assert', 'error', 'getmetatable', 'ipairs', 'next', 'pairs', 'rawequal', 'rawget', 'select',
  'setmetatable', 'tonumber', 'tostring', 'type', 'unpack' }) do
  globals[name] = _G[name]
end
for _, name in ipairs({ 'math', 'string', 'table' }) do
  globals[name] = read_only(_G[name])
end

local environment = read_only(globals, function(_, name)
  local value = globals[name]
  if value == nil then
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end
  return value
end)
globals._G = environment

local function explain(problem)
  return { err = text_of(problem) or 'ERR ' .. tostring(problem), line = line() }
end

return function(script, keys, args)
  globals.KEYS, globals.ARGV = keys, args
  setfenv(script, environment)
  return xpcall(script, explain)
end
