-- Fast path: an exclusive claim joins the queue of a lock with one holder. fast_turn.lua has read
-- the record's head before.
local lasts, channel, lease = string.match(ARGV[6], '^(%d+) (%x+) ?(%d*)$')
local is_exclusive = string.sub(ARGV[5], 1, 20) == ',"mode":"exclusive",'
if rev and lasts and is_exclusive and now > tonumber(rev) and tonumber(fence) < MOST
  and string.sub(raw, -2) == ']}'
then
  local ttl, expires_at, stop = string.match(raw, '^{"token":"[^"]*","fence":%d+,"mode":"%l+",' ..
    '"ttl":(%d+),"acquired_at":%d+,"expires_at":(%d+),"beat":"[^"]*",' ..
    '"limit":%w+,"offered":%l+,"owner":[^\n]*}()\n', start)
  local mine = string.sub(ARGV[2], 1, -9) -- without '"fence":'
  if stop and now <= tonumber(expires_at)
    and string.sub(raw, stop + 1, stop + #BETWEEN) == BETWEEN
    and not string.find(raw, mine, start, true)
  then
    local queue = string.sub(raw, stop + #BETWEEN + 1, -4)
    local terms, owner = string.match(ARGV[7],
      '^,("beat":"[^"]*","limit":%w+),"offered":%l+,(.-),"note":')
    local lives = now <= tonumber(soonest) and tonumber(soonest) <= now + LONGEST
    if terms and (queue == '' or lives) then
      local ahead = stretch(queue, 1, #queue)
      local first, more = queue_head(ahead)
      local ends = string.format('%.0f', now + lasts)
      local place = mine .. '"mode":"exclusive","ttl":' .. lasts .. ',"since":' .. at
        .. ',"expires_at":' .. ends .. ',' .. terms .. ',' .. owner .. lease_text(lease)
        .. '"bell":"' .. channel .. '"}\n]}'
      if queue ~= '' then
        place = queue .. ',\n' .. place
        if tonumber(soonest) < now + lasts then ends = soonest end
      end
      local holder = string.sub(raw, start, stop - 1)
      local text = head_text(fence, '', ends) .. holder .. '\n],"queue":[\n' .. place
      local holder_ms = math.ceil(math.max(ttl, expires_at - now) / 1000)
      redis.call('SET', KEYS[1], text, 'PX', string.format('%.0f', ARGV[1] + holder_ms))
      return 'blocked\n' .. at .. '\n' .. at .. '\n1\n' .. count_lines(ahead, more)
        .. '\n[' .. holder .. ']\n' .. first
    end
  end
end
