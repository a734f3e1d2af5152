-- The short way into a lock that is free and has been used before.
if raw then
  local rev, fence = string.match(raw, '^{"v":1,"rev":(%d+),"fence":(%d+),"updated_at":%d+,"freed":"[^"]*","soonest":%d+,"holders":%[\n%],"queue":%[\n%]}$')
  if rev and tonumber(fence) < MOST then
    rev = rev + 1 > now and string.format('%.0f', rev + 1) or at
    fence = fence + 1 > now and string.format('%.0f', fence + 1) or at
    local holder = '{"token":"' .. ARGV[4] .. '","fence":' .. fence .. ',"mode":"' .. ARGV[5] .. '","ttl":' .. ARGV[6] .. ',"acquired_at":' .. at .. ',"expires_at":' .. string.format('%.0f', now + ARGV[6]) .. ',"beat":"' .. ARGV[1] .. '","limit":' .. ARGV[7] .. ',"offered":false,' .. ARGV[8] .. '}'
    redis.call('SET', KEYS[1], '{"v":1,"rev":' .. rev .. ',"fence":' .. fence .. ',"updated_at":' .. at .. ',"freed":"","soonest":0,"holders":[\n' .. holder .. '\n],"queue":[\n]}', 'PX', ARGV[2] + math.ceil(ARGV[6] / 1000))
    return 'granted\n' .. at .. '\n' .. rev .. '\n' .. holder .. '\n'
  end
end
