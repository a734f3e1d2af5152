-- Take the lock if it is free.
--   KEYS[1]  its name
--   ARGV[1]  the token          ARGV[2]  the ttl in milliseconds, or '' for none
--   ARGV[3]  '1' if nobody but this attempt has the token
-- Answers {1, 0}: got it;  {0, pttl}: somebody has it for so long (-1: for ever).
-- Run twice, because a reply was lost, it finds its own token and has it still.
local name, token, ttl = KEYS[1], ARGV[1], ARGV[2]
local got
if ttl == '' then
  got = redis.call('set', name, token, 'NX')
else
  got = redis.call('set', name, token, 'NX', 'PX', ttl)
end
if got then
  return {1, 0}
end
if ARGV[3] == '1' and redis.call('get', name) == token then
  if ttl ~= '' then
    redis.call('pexpire', name, ttl)
  end
  return {1, 0}
end
return {0, redis.call('pttl', name)}
