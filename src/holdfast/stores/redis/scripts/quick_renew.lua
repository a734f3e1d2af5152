-- The short way for the only holder of a lock for which nobody waits.
if raw then
  local rev, fence, start, token, ttl, expires_at, rest = string.match(raw, '^{"v":1,"rev":(%d+),"fence":(%d+),"updated_at":%d+,"freed":"[^"]*","soonest":%d+,"holders":%[\n({"token":"([^"]*)","fence":%d+,"mode":"%l+","ttl":(%d+),"acquired_at":%d+,"expires_at":)(%d+),"beat":"[^"]*"(,"limit":%w+,"offered":%l+,"owner":[^\n]*})\n%],"queue":%[\n%]}$')
  if token == ARGV[4] and tonumber(fence) < MOST and now <= tonumber(expires_at) then
    rev = string.format('%.0f', math.max(rev + 1, now))
    local at = string.format('%.0f', now)
    local left = math.max(tonumber(ttl), expires_at - now)
    local holder = string.format('%s%.0f,"beat":"%s"%s', start, now + left, ARGV[1], rest)
    redis.call('SET', KEYS[1], string.format(
      '{"v":1,"rev":%s,"fence":%s,"updated_at":%s,"freed":"","soonest":0,"holders":[\n%s\n],"queue":[\n]}',
      rev, fence, at, holder), 'PX', string.format('%.0f', math.ceil((left + ARGV[2]) / 1000)))
    return { 'granted', at, rev, holder, '' }
  end
end
