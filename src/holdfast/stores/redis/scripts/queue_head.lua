-- As many waiters as are told of at once: SHOWN in `holdfast.core.rules`.
local SHOWN = 16

-- A queue is a stretch of a text, lines with ',\n' between them. `without` is where the one line
-- starts that does not belong to it, in its midst.
local function stretch(text, first, last, without)
  return { text = text, first = first, last = last, without = without }
end

local function is_empty(queue)
  return queue.first > queue.last
end

-- Where the line that starts here ends, and where the next one starts, if there is one.
local function line_end(queue, start)
  local stop = string.find(queue.text, '\n', start, true)
  if stop and stop < queue.last then return stop - 2, stop + 1 end
  return queue.last
end

-- The first few waiters of a queue as an array, and where the next one starts, if there is one.
local function queue_head(queue)
  if is_empty(queue) then return '' end
  local lines, start = {}, queue.first
  while start and #lines < SHOWN do
    local stop, next_start = line_end(queue, start)
    if start ~= queue.without then lines[#lines + 1] = string.sub(queue.text, start, stop) end
    start = next_start
  end
  return '[' .. table.concat(lines, ',\n') .. ']', start
end

-- How many waiters there are from here on, in a queue that is whole.
local function count_lines(queue, start)
  local text, last, find, count = queue.text, queue.last, string.find, 0
  while start and start <= last do
    count = count + 1
    start = find(text, '\n', start, true)
    start = start and start + 1
  end
  return count
end
