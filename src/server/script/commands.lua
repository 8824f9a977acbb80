-- The second part of a guarded write: the user's commands, one after another, whatever each answers.
-- ARGV    from 4 on, for each command: how many parts it has, its parts
-- answer  {n, what each command answered}
local answers, at = {ARGV[1]}, 4
while ARGV[at] do
  local parts = tonumber(ARGV[at])
  answers[#answers + 1] = redis.pcall(unpack(ARGV, at + 1, at + parts))
  at = at + parts + 1
end
return answers
