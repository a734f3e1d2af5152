-- The queue as text, because taking a thousand waiters apart would cost milliseconds.
--
-- Lines start with the token, so that one's own is found by a plain search.

local WAITER = '^{"token":"([^"]*)","mode":"(%l+)","ttl":%d+,"since":(%d+),' ..
  '"expires_at":(%d+),"beat":"[^"]*","limit":(%w+),"owner":[^\n]*}'

-- Where the line that starts here ends, and where the next one starts, if there is one.
local function line_end(queue, start)
  local stop = string.find(queue, '\n', start, true)
  if stop then return stop - 2, stop + 1 end
  return #queue
end

-- Where the line of this token is.
local function find_line(queue, token)
  local head = '{"token":"' .. token .. '"'
  if string.sub(queue, 1, #head) == head then return 1, (line_end(queue, 1)) end
  local before = string.find(queue, '\n' .. head, 1, true)
  if before then return before + 1, (line_end(queue, before + 1)) end
end

local function joined(one, other)
  if one == '' then return other end
  return other == '' and one or one .. ',\n' .. other
end

-- The lines before this place.
local function lines_before(queue, start)
  return start > 1 and string.sub(queue, 1, start - 3) or ''
end

local function without_line(queue, token)
  local start, stop = find_line(queue, token)
  if not start then return queue end
  return joined(lines_before(queue, start), string.sub(queue, stop + 3))
end

-- All waiters in turn, until `visit` says to stop.
local function each_waiter(queue, visit)
  local start = queue ~= '' and 1 or nil
  while start do
    local stop, next_start = line_end(queue, start)
    local waiter = { text = string.sub(queue, start, stop) }
    waiter.token, waiter.mode, waiter.since, waiter.expires_at, waiter.limit =
      string.match(waiter.text, WAITER)
    if not waiter.token then error('HOLDFAST this record cannot be used') end
    if visit(waiter) then return end
    start = next_start
  end
end

-- The queue without the dead, and when the next one may run out.
local function living(record)
  if record.queue == '' or now <= record.soonest then return record.queue, record.soonest end
  local lines, soonest = {}, MOST
  each_waiter(record.queue, function(waiter)
    local expires_at = tonumber(waiter.expires_at)
    if expires_at == 0 or now <= expires_at then
      lines[#lines + 1] = waiter.text
      if expires_at > 0 then soonest = math.min(soonest, expires_at) end
    end
  end)
  return table.concat(lines, ',\n'), soonest
end
