-- Fast path: the first in the queue of a free lock claims it.
local rev, fence, _, soonest, start = string.match(raw and #raw < LONG and raw or '', HEAD)
if rev and now > tonumber(rev) and now > tonumber(fence) and now <= tonumber(soonest)
    and tonumber(soonest) <= now + LONGEST
  and string.sub(raw, -3) == '\n]}' and string.sub(raw, start, start + #BETWEEN - 1) == BETWEEN
then
  local mine = string.sub(ARGV[2], 1, -9) -- without '"fence":'
  local first = start + #BETWEEN
  if string.sub(raw, first, first + #mine - 1) == mine then
    local queue = string.sub(raw, string.find(raw, '\n', first, true) + 1, -4)
    local expires_at = string.format('%.0f', now + ARGV[3])
    local first = at
    if string.sub(ARGV[5], 1, 19) == ',"mode":"exclusive"' then
      first = string.format('%.0f', math.max(fence + 1, now - RANGE))
    end
    local text = head_text(at, '', queue == '' and '0' or soonest) .. ARGV[2] .. first .. ARGV[5]
      .. at .. ',"expires_at":' .. expires_at .. ARGV[7] .. '\n],"queue":[\n'
      .. queue .. (queue == '' and ']}' or '\n]}')
    redis.call('SET', KEYS[1], text, 'PX', ARGV[4])
    return { now, (queue_head(stretch(queue, 1, #queue))), tonumber(first) }
  end
end
