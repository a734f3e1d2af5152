-- The short way in for the first in the queue of a lock that is free.
local rev, fence, _, soonest, start = string.match(raw or '', HEAD)
if rev and now > tonumber(rev) and now > tonumber(fence) and now <= tonumber(soonest) and string.sub(raw, -3) == '\n]}' and string.sub(raw, start, start + #BETWEEN - 1) == BETWEEN then
  local mine = string.sub(ARGV[2], 1, -9) -- without '"fence":'
  local first = start + #BETWEEN
  if string.sub(raw, first, first + #mine - 1) == mine then
    local queue = string.sub(raw, string.find(raw, '\n', first, true) + 1, -4)
    local holder = ARGV[2] .. at .. ARGV[5] .. at .. ',"expires_at":' .. string.format('%.0f', now + ARGV[3]) .. ARGV[7]
    local rest = queue == '' and ']}' or queue .. '\n]}'
    redis.call('SET', KEYS[1], '{"v":1,"rev":' .. at .. ',"fence":' .. at .. ',"updated_at":' .. at .. ',"freed":"","soonest":' .. (queue == '' and '0' or soonest) .. ',"holders":[\n' .. holder .. '\n],"queue":[\n' .. rest, 'PX', ARGV[4])
    return { now, (shown(queue)) }
  end
end
