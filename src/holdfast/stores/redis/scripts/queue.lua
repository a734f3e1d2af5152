-- The queue as text, because taking a thousand waiters apart would cost milliseconds.
--
-- Lines start with the token, so that one's own is found by a plain search.

local WAITER = '^{"token":"([^"]*)","mode":"(%l+)","ttl":%d+,"since":(%d+),' ..
  '"expires_at":(%d+),"beat":"[^"]*","limit":(%w+),"owner":[^\n]*}'

-- Where the line of this token is.
local function find_line(queue, token)
  local text, first, head = queue.text, queue.first, '{"token":"' .. token .. '"'
  if is_empty(queue) then return end
  if string.sub(text, first, first + #head - 1) == head then
    return first, (line_end(queue, first))
  end
  local before = string.find(text, '\n' .. head, first, true)
  if before and before < queue.last then return before + 1, (line_end(queue, before + 1)) end
end

-- The lines before this one.
local function lines_before(queue, start)
  return stretch(queue.text, queue.first, start - 3)
end

-- The queue without the line of this token, and whether it was there.
local function without_line(queue, token)
  local start, stop = find_line(queue, token)
  if not start then return queue, false end
  if start == queue.first then return stretch(queue.text, stop + 3, queue.last), true end
  if stop == queue.last then return lines_before(queue, start), true end
  return stretch(queue.text, queue.first, queue.last, start), true
end

-- All waiters in turn, until `visit` says to stop.
local function each_waiter(queue, visit)
  local start = not is_empty(queue) and queue.first or nil
  while start do
    local stop, next_start = line_end(queue, start)
    if start ~= queue.without then
      local waiter = { text = string.sub(queue.text, start, stop) }
      waiter.token, waiter.mode, waiter.since, waiter.expires_at, waiter.limit =
        string.match(waiter.text, WAITER)
      if not waiter.token then error('HOLDFAST this record cannot be used') end
      if visit(waiter) then return end
    end
    start = next_start
  end
end

-- The queue without those of whom `goes` says so; the same table, if they all stay.
local function sifted(queue, goes)
  local lines, count = {}, 0
  each_waiter(queue, function(waiter)
    count = count + 1
    if not goes(waiter) then lines[#lines + 1] = waiter.text end
  end)
  if #lines == count then return queue end
  local text = table.concat(lines, ',\n')
  return stretch(text, 1, #text)
end

-- The queue without the dead, and when the next one may run out. A place that would last longer
-- than the longest ttl is dead, too: it was forged, or the clock has jumped.
local function living(record)
  local queue, soonest = record.queue, record.soonest
  if is_empty(queue) or now <= soonest and soonest <= now + LONGEST then return queue, soonest end
  soonest = MOST
  queue = sifted(queue, function(waiter)
    local expires_at = tonumber(waiter.expires_at)
    if expires_at == 0 then return false end
    if now > expires_at or expires_at > now + LONGEST then return true end
    soonest = math.min(soonest, expires_at)
    return false
  end)
  return queue, soonest
end
