-- As many waiters as are told of at once: SHOWN in `holdfast.core.rules`.
local SHOWN = 16

-- The first few waiters of a queue as an array, and how many more there are.
local function queue_head(queue)
  if queue == '' then return '', 0 end
  local count, cut, stop = 1, nil, string.find(queue, '\n', 1, true)
  while stop do
    if count == SHOWN then cut = stop - 2 end -- before the comma
    count = count + 1
    stop = string.find(queue, '\n', stop + 1, true)
  end
  return '[' .. (cut and string.sub(queue, 1, cut) or queue) .. ']', math.max(0, count - SHOWN)
end
