-- Reading a record into tables, and writing it.

local HOLDER = '^{"token":"([^"]*)","fence":(%d+),"mode":"(%l+)","ttl":(%d+),' ..
  '"acquired_at":(%d+),"expires_at":(%d+),"beat":"([^"]*)","limit":(%w+),"offered":(%l+),' ..
  '("owner":.*)}$'

-- A rev that can be counted on from; nil: somebody else wrote it.
local function counted(rev)
  return rev and string.match(rev, '^[1-9]') and tonumber(rev) < MOST and rev or nil
end

local function read_holder(text)
  local holder = { text = text }
  holder.token, holder.fence, holder.mode, holder.ttl, holder.acquired_at, holder.expires_at,
    holder.beat, holder.limit, holder.offered, holder.rest = string.match(text, HOLDER)
  return holder.token and holder
end

local function holder_of(holder)
  holder.text = table.concat({
    '{"token":"', holder.token, '","fence":', holder.fence, ',"mode":"', holder.mode,
    '","ttl":', holder.ttl, ',"acquired_at":', holder.acquired_at,
    ',"expires_at":', holder.expires_at, ',"beat":"', holder.beat,
    '","limit":', holder.limit, ',"offered":', holder.offered, ',', holder.rest, '}',
  })
  return holder
end

local function read_holders(lines)
  local holders, size = {}, 0
  for text, comma in string.gmatch(lines, '([^\n]*})(,?)\n') do
    local holder = read_holder(text)
    if not holder then return nil end
    size = size + #text + #comma + 1
    holders[#holders + 1] = holder
  end
  return size == #lines and holders or nil
end

-- The record. None is an empty one without a rev; nil: it is not ours. Its queue stays text: see
-- queue.lua.
local function read_record()
  local none = { text = '', first = 1, last = 0 }
  if not raw then return { fence = 0, freed = '', soonest = 0, holders = {}, queue = none } end
  local record, first = {}
  record.rev, record.fence, record.freed, record.soonest, first = string.match(raw, HEAD)
  if not record.rev or string.sub(raw, -2) ~= ']}' then return nil end
  local last, before = string.find(raw, BETWEEN, first, true) -- a plain search is quick
  if not last then return nil end
  record.fence, record.soonest = tonumber(record.fence), tonumber(record.soonest)
  record.holders = read_holders(string.sub(raw, first, last - 1))
  record.queue = { text = raw, first = before + 1, last = #raw - 3 }
  if not record.holders or record.fence >= MOST or not counted(record.rev) then return nil end
  return record
end

local function texts(holders, glue)
  local list = {}
  for place, holder in ipairs(holders) do list[place] = holder.text end
  return table.concat(list, glue)
end

local function array(holders)
  return #holders == 0 and '' or '[' .. texts(holders, ',') .. ']'
end

-- For how many milliseconds a record stays: until its last holder is over, and then a while.
-- (Waiters come on top in `droppable_at`. Their places last seconds, a tombstone a day.)
local function lifetime(holders)
  local last = 0
  for _, holder in ipairs(holders) do
    last = math.max(last, tonumber(holder.ttl), holder.expires_at - now)
  end
  return ARGV[1] + math.ceil(last / 1000)
end

-- A record until its queue.
local function text_before_queue(record)
  return table.concat({
    '{"v":1,"rev":', record.rev, ',"fence":', digits(record.fence), ',"updated_at":', at,
    ',"freed":"', record.freed or '', '","soonest":', digits(record.soonest), ',"holders":[\n',
    texts(record.holders, ',\n'), #record.holders > 0 and '\n' or '', BETWEEN,
  })
end

-- Its queue in pieces. A place takes the one of `from` to `to`, or the last.
local function queue_pieces(queue, place, from, to)
  local text, first, last = queue.text, queue.first, queue.last
  if from then
    return { string.sub(text, first, from - 1), place, string.sub(text, to + 1, last), '\n' }
  end
  if first > last then return place and { place, '\n' } or {} end
  if place then return { string.sub(text, first, last), ',\n', place, '\n' } end
  if not queue.without then return { string.sub(text, first, last), '\n' } end
  local after = string.find(text, '\n', queue.without, true)
  return { string.sub(text, first, queue.without - 1), string.sub(text, after + 1, last), '\n' }
end

-- Whether the server refuses a command. As the first write it may: then nothing is done.
local function is_refused(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err
end

-- Write a long record by changing what is different, if nothing else moves. Returns whether it did.
local function write_in_place(record, before, milliseconds, place, from, to)
  local queue = record.queue
  local moves = queue.text ~= raw or queue.without or queue.first ~= #before + 1
    or queue.last ~= #raw - 3 or from and #place ~= to - from + 1
  if moves or is_refused('SETRANGE', KEYS[1], 0, before) then return false end
  if from then
    redis.call('SETRANGE', KEYS[1], from - 1, place)
  elseif place then
    redis.call('SETRANGE', KEYS[1], queue.last, ',\n' .. place .. '\n]}')
  end
  redis.call('PEXPIRE', KEYS[1], milliseconds)
  return true
end

-- Write the record with a rev that no record of this key has had. `place` is a line to add to its
-- queue, or to put there from here to there.
--
-- Every text that Lua makes costs more than a nanosecond a byte, and a queue has 250 bytes for each
-- waiter. So of a long record only what changes is written, or else one part after the other; but
-- not for users who lack the rights, which 0.1.0 did not need.
local function write_record(record, place, from, to)
  local is_new = not record.rev
  record.rev = digits(math.max((record.rev or 0) + 1, now))
  local milliseconds = lifetime(record.holders)
  local stays, before = digits(milliseconds), text_before_queue(record)
  -- The index first: if it cannot be written, nothing has been.
  if is_new and KEYS[2] then enter_index(milliseconds) end
  local is_long = raw and #raw >= LONG
  if is_long and write_in_place(record, before, stays, place, from, to) then return end
  local pieces = queue_pieces(record.queue, place, from, to)
  if is_long and not is_refused('APPEND', KEYS[1], '') then
    redis.call('SET', KEYS[1], before, 'PX', stays)
    for _, piece in ipairs(pieces) do redis.call('APPEND', KEYS[1], piece) end
    redis.call('APPEND', KEYS[1], ']}')
  else
    redis.call('SET', KEYS[1], before .. table.concat(pieces) .. ']}', 'PX', stays)
  end
end

-- The answer to a command: its name, the clock, the rev, and what belongs to it.
local function answer(record, name, ...)
  return table.concat({ name, at, record.rev or '', ... }, '\n')
end

-- The answer to a command that changed nothing now, but may have done so before: WAIT is to
-- wait for that, so write the expiry that is there once more.
local function unchanged(record, name, ...)
  local left = ARGV[#ARGV] == '!' and record.rev and redis.call('PTTL', KEYS[1])
  if left and left > 0 then redis.call('PEXPIRE', KEYS[1], left) end
  return answer(record, name, ...)
end
