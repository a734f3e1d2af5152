-- Set the time that the lock has left. Harmless to repeat.
--   KEYS[1]  its name
--   ARGV[1]  the token          ARGV[2]  milliseconds
--   ARGV[3]  'reacquire' whatever it has now | 'extend' unless it has no end | 'renew' only if longer
-- Answers 1: done;  0: this token does not hold it, or 'extend' has nothing to replace.
local name, ttl, rule = KEYS[1], tonumber(ARGV[2]), ARGV[3]
if redis.call('get', name) ~= ARGV[1] then
  return 0
end
local left = redis.call('pttl', name)
if rule == 'extend' and left < 0 then
  return 0
end
if rule ~= 'renew' or (left >= 0 and left < ttl) then
  redis.call('pexpire', name, ttl)
end
return 1
