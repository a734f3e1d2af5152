-- Fast path: renew the only holder of a lock for which nobody waits.
if raw and #ARGV[4] < 2 and string.sub(raw, -15) == '\n],"queue":[\n]}' then
  local rev, fence = string.match(raw, '^{"v":1,"rev":(%d+),"fence":(%d+),')
  local before_holder = ',"soonest":0,"holders":[\n'
  local head, mine = string.find(raw, before_holder .. '{"token":"' .. ARGV[2] .. '",', 1, true)
  local is_only = mine and string.find(raw, '\n', mine, true) == #raw - 14
  if rev and now > tonumber(rev) and tonumber(fence) < MOST and is_only then
    local ttl, before, old, after = string.match(raw, '^"fence":%d+,"mode":"%l+","ttl":(%d+),' ..
      '"acquired_at":%d+,"expires_at":()(%d+),"beat":"[^"]*"(),"limit":', mine + 1)
    local expires_at = ttl and string.format('%d', now + ttl)
    if ttl and now <= tonumber(old) and now + ttl >= tonumber(old) and #expires_at == #at then
      local holder = string.sub(raw, head + #before_holder, before - 1) .. expires_at
        .. ',"beat":"' .. ARGV[3] .. '"' .. string.sub(raw, after, -16)
      local stays_ms = string.format('%d', ARGV[1] + math.ceil(ttl / 1000))
      local text = head_text(fence, '', '0') .. holder .. '\n],"queue":[\n]}'
      redis.call('SET', KEYS[1], text, 'PX', stays_ms)
      if ARGV[4] == '1' then return now end
      return 'granted\n' .. at .. '\n' .. at .. '\n' .. holder .. '\n'
    end
  end
end
