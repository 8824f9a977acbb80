-- The second part of a guarded write: the user's script, which stands above as the function `body`.
-- answer  {n, what it returned}
local keys, args = {}, {}
for i = keys_from, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 4, #ARGV do args[#args + 1] = ARGV[i] end
return {ARGV[1], (body(keys, args))}
