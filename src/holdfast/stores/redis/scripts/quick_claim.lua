-- The short way into a lock that is free and has been used before.
if raw then
  local rev, fence = string.match(raw, '^{"v":1,"rev":(%d+),"fence":(%d+),"updated_at":%d+,"freed":"[^"]*","soonest":%d+,"holders":%[\n%],"queue":%[\n%]}$')
  if rev and tonumber(fence) < MOST then
    rev = string.format('%.0f', math.max(rev + 1, now))
    fence = string.format('%.0f', math.max(fence + 1, now))
    local at = string.format('%.0f', now)
    local holder = string.format(
      '{"token":"%s","fence":%s,"mode":"%s","ttl":%s,"acquired_at":%s,"expires_at":%.0f,"beat":"%s","limit":%s,"offered":false,%s}',
      ARGV[4], fence, ARGV[5], ARGV[6], at, now + ARGV[6], ARGV[1], ARGV[7], ARGV[8])
    redis.call('SET', KEYS[1], string.format(
      '{"v":1,"rev":%s,"fence":%s,"updated_at":%s,"freed":"","soonest":0,"holders":[\n%s\n],"queue":[\n]}',
      rev, fence, at, holder), 'PX', string.format('%.0f', math.ceil((ARGV[6] + ARGV[2]) / 1000)))
    return { 'granted', at, rev, holder, '' }
  end
end
