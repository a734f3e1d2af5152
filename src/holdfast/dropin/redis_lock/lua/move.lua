-- Move the moment at which the lock runs out. Run twice, it moves it once.
--   KEYS[1]  its name
--   ARGV[1]  the token          ARGV[2]  the moment as it was seen          ARGV[3]  the new one
-- Answers 1: it is the new one;  0: this token does not hold it;  -1: another moved it meanwhile.
local name, seen, goal = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('get', name) ~= ARGV[1] then
  return 0
end
local now = redis.call('time')
local at = now[1] * 1000 + math.floor(now[2] / 1000) + redis.call('pttl', name)
-- Two clock readings of one moment may be a millisecond apart.
if math.abs(at - goal) <= 1 then
  return 1
end
if math.abs(at - seen) > 1 then
  return -1
end
redis.call('pexpireat', name, ARGV[3])
return 1
