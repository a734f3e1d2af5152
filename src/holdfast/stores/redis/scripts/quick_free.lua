-- The short way out for the only holder of a lock for which nobody waits.
if raw then
  local rev, fence, token = string.match(raw, '^{"v":1,"rev":(%d+),"fence":(%d+),"updated_at":%d+,"freed":"[^"]*","soonest":%d+,"holders":%[\n{"token":"([^"]*)","fence":%d+,"mode":"%l+","ttl":%d+,"acquired_at":%d+,"expires_at":%d+,"beat":"[^"]*","limit":%w+,"offered":%l+,"owner":[^\n]*}\n%],"queue":%[\n%]}$')
  if token == ARGV[4] and tonumber(fence) < MOST then
    rev = string.format('%.0f', math.max(rev + 1, now))
    local at = string.format('%.0f', now)
    redis.call('SET', KEYS[1], string.format(
      '{"v":1,"rev":%s,"fence":%s,"updated_at":%s,"freed":"%s","soonest":0,"holders":[\n],"queue":[\n]}',
      rev, fence, at, token), 'PX', string.format('%.0f', math.ceil(ARGV[2] / 1000)))
    redis.pcall('PUBLISH', KEYS[1] .. ':wake', rev .. ' *')
    return { 'freed', at, rev }
  end
end
