-- When does the lock of this token run out?
--   KEYS[1]  its name
--   ARGV[1]  the token
-- Answers the moment in milliseconds;  -1: never;  0: this token does not hold it.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
local left = redis.call('pttl', KEYS[1])
if left < 0 then
  return -1
end
local now = redis.call('time')
return now[1] * 1000 + math.floor(now[2] / 1000) + left
