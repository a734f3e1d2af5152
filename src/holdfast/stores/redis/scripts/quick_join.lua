-- The short way into the queue, for an exclusive claim on a lock with one holder. What is in the
-- record's head was read by quick_turn.lua.
local patience, bell = string.match(ARGV[6], '^(%d+) (%x+)$')
if rev and patience and now > tonumber(rev) and tonumber(fence) < MOST and string.sub(raw, -2) == ']}' and string.sub(ARGV[5], 1, 20) == ',"mode":"exclusive",' then
  local ttl, expires_at, stop = string.match(raw, '^{"token":"[^"]*","fence":%d+,"mode":"%l+","ttl":(%d+),"acquired_at":%d+,"expires_at":(%d+),"beat":"[^"]*","limit":%w+,"offered":%l+,"owner":[^\n]*}()\n', start)
  local mine = string.sub(ARGV[2], 1, -9) -- without '"fence":'
  if stop and now <= tonumber(expires_at) and string.sub(raw, stop + 1, stop + #BETWEEN) == BETWEEN and not string.find(raw, mine, start, true) then
    local queue = string.sub(raw, stop + #BETWEEN + 1, -4)
    local terms, owner = string.match(ARGV[7], '^,("beat":"[^"]*","limit":%w+),"offered":%l+,(.-),"note":')
    if terms and (queue == '' or now <= tonumber(soonest)) then
      local first, more = shown(queue)
      local ends = string.format('%.0f', now + patience)
      local place = mine .. '"mode":"exclusive","ttl":' .. patience .. ',"since":' .. at .. ',"expires_at":' .. ends .. ',' .. terms .. ',' .. owner .. ',"bell":"' .. bell .. '"}\n]}'
      if queue ~= '' then
        place = queue .. ',\n' .. place
        if tonumber(soonest) < now + patience then ends = soonest end
      end
      local holder = string.sub(raw, start, stop - 1)
      redis.call('SET', KEYS[1], '{"v":1,"rev":' .. at .. ',"fence":' .. fence .. ',"updated_at":' .. at .. ',"freed":"","soonest":' .. ends .. ',"holders":[\n' .. holder .. '\n],"queue":[\n' .. place, 'PX', string.format('%.0f', ARGV[1] + math.ceil(math.max(ttl, expires_at - now) / 1000)))
      return 'blocked\n' .. at .. '\n' .. at .. '\n1\n' .. more .. '\n[' .. holder .. ']\n' .. first
    end
  end
end
