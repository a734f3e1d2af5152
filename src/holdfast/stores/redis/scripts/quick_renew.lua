-- The short way for the only holder of a lock for which nobody waits.
if raw then
  local rev, fence, start, token, ttl, expires_at, rest = string.match(raw, '^{"v":1,"rev":(%d+),"fence":(%d+),"updated_at":%d+,"freed":"[^"]*","soonest":%d+,"holders":%[\n({"token":"([^"]*)","fence":%d+,"mode":"%l+","ttl":(%d+),"acquired_at":%d+,"expires_at":)(%d+),"beat":"[^"]*"(,"limit":%w+,"offered":%l+,"owner":[^\n]*})\n%],"queue":%[\n%]}$')
  if token == ARGV[4] and tonumber(fence) < MOST and now <= tonumber(expires_at) then
    rev = rev + 1 > now and string.format('%.0f', rev + 1) or at
    local left = math.max(tonumber(ttl), expires_at - now)
    local holder = start .. string.format('%.0f', now + left) .. ',"beat":"' .. ARGV[1] .. '"' .. rest
    redis.call('SET', KEYS[1], '{"v":1,"rev":' .. rev .. ',"fence":' .. fence .. ',"updated_at":' .. at .. ',"freed":"","soonest":0,"holders":[\n' .. holder .. '\n],"queue":[\n]}', 'PX', ARGV[2] + math.ceil(left / 1000))
    return 'granted\n' .. at .. '\n' .. rev .. '\n' .. holder .. '\n'
  end
end
