-- Free the lock, and tell those who listen.
--   KEYS[1]  its name
--   ARGV[1]  the token          ARGV[2]  the channel, or '' for none
-- Answers 1: freed;  0: this token does not hold it.
-- A user who may not publish can release all the same: hence pcall.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[1])
if ARGV[2] ~= '' then
  redis.pcall('publish', ARGV[2], '')
end
return 1
