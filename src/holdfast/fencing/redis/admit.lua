-- The gate and the commands behind it, as one step.
-- KEYS[1] is the gate. ARGV[1] is the fence; then, for each command, its number of words and those.
-- Returns {what is remembered} if that is larger, else {false, {the replies}}.
-- Numbers are compared as digits: Lua's are exact only up to 2^53.

local remembered = redis.call('GET', KEYS[1])
if remembered and not string.find(remembered, '^%d+$') then
  return redis.error_reply('WRONGTYPE not a fence')
end
local fence = ARGV[1]
if remembered and (#remembered > #fence or (#remembered == #fence and remembered > fence)) then
  return {remembered}
end
if remembered ~= fence then
  redis.call('SET', KEYS[1], fence)
end
local replies, at = {}, 2
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, last))
  at = last + 1
end
return {false, replies}
