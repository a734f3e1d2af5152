-- Fast path: claim a free lock that has been used before.
if raw and string.sub(raw, -39) == ',"soonest":0,"holders":[\n],"queue":[\n]}' then
  local rev, fence = string.match(raw, '^{"v":1,"rev":(%d+),"fence":(%d+),')
  local expires_at = string.format('%d', now + ARGV[3]) -- shorter where integers are too small
  if rev and now > tonumber(rev) and now > tonumber(fence) and #expires_at == #at then
    local text = head_text(at, '', '0') .. ARGV[2] .. at .. ARGV[5] .. at
      .. ',"expires_at":' .. expires_at .. ARGV[7] .. '\n],"queue":[\n]}'
    redis.call('SET', KEYS[1], text, 'PX', ARGV[4])
    return now
  end
end
