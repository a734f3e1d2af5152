-- The long way: reading a record into tables, and writing it.

local HEAD = '^{"v":1,"rev":(%d+),"fence":(%d+),"updated_at":(%d+),"freed":"([^"]*)","holders":%[\n(.-)%],"queue":%[\n(.*)%]}$'
local HOLDER = '^{"token":"([^"]*)","fence":(%d+),"mode":"(%l+)","ttl":(%d+),"acquired_at":(%d+),"expires_at":(%d+),"beat":"([^"]*)","limit":(%w+),"offered":(%l+),("owner":.*)}$'
local WAITER = '^{"token":"([^"]*)","mode":"(%l+)","ttl":(%d+),"since":(%d+),"expires_at":(%d+),"beat":"([^"]*)","limit":(%w+),("owner":.*)}$'

local function digits(number)
  return string.format('%.0f', number)
end

local function read_holder(text)
  local holder = { text = text }
  holder.token, holder.fence, holder.mode, holder.ttl, holder.acquired_at, holder.expires_at,
    holder.beat, holder.limit, holder.offered, holder.rest = string.match(text, HOLDER)
  return holder.token and holder
end

local function read_waiter(text)
  local waiter = { text = text }
  waiter.token, waiter.mode, waiter.ttl, waiter.since, waiter.expires_at, waiter.beat,
    waiter.limit, waiter.rest = string.match(text, WAITER)
  return waiter.token and waiter
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

local function waiter_of(waiter)
  waiter.text = table.concat({
    '{"token":"', waiter.token, '","mode":"', waiter.mode, '","ttl":', waiter.ttl,
    ',"since":', waiter.since, ',"expires_at":', waiter.expires_at, ',"beat":"', waiter.beat,
    '","limit":', waiter.limit, ',', waiter.rest, '}',
  })
  return waiter
end

local function read_parties(lines, read)
  local parties, size = {}, 0
  for text, comma in string.gmatch(lines, '([^\n]*})(,?)\n') do
    local party = read(text)
    if not party then return nil end
    size = size + #text + #comma + 1
    parties[#parties + 1] = party
  end
  return size == #lines and parties or nil
end

-- The record. None is an empty one without a rev; nil: it is not ours.
local function read_record()
  if not raw then return { fence = 0, freed = '', holders = {}, queue = {} } end
  local record, holders, queue = {}
  record.rev, record.fence, record.updated_at, record.freed, holders, queue =
    string.match(raw, HEAD)
  if not record.rev then return nil end
  record.fence = tonumber(record.fence)
  record.holders = read_parties(holders, read_holder)
  record.queue = read_parties(queue, read_waiter)
  if not record.holders or not record.queue or record.fence >= MOST then return nil end
  return record
end

local function texts(parties, glue)
  local list = {}
  for place, party in ipairs(parties) do list[place] = party.text end
  return table.concat(list, glue)
end

local function array(parties)
  if #parties == 0 then return '' end
  return '[' .. texts(parties, ',') .. ']'
end

local function lines(parties)
  if #parties == 0 then return '' end
  return texts(parties, ',\n') .. '\n'
end

-- For how many milliseconds a record stays: until its last party is over, and then a while.
local function lifetime(parties_of)
  local last = 0
  for _, parties in ipairs(parties_of) do
    for _, party in ipairs(parties) do
      last = math.max(last, tonumber(party.ttl), party.expires_at - now)
    end
  end
  return math.ceil((last + ARGV[2]) / 1000)
end

local function uncoded(code)
  return (string.gsub(code, '%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end))
end

local function leave_index(code)
  redis.call('ZREM', KEYS[2], uncoded(code))
  redis.call('ZREM', KEYS[3], code)
end

-- The index is two sorted sets: the keys in their order, and when to look whether a record
-- has gone by itself. Each new record looks after two old ones, so nothing piles up.
local function enter_index(milliseconds)
  local head, code = string.match(KEYS[1], '^(.*:){(.*)}$')
  local at = math.floor(now / 1000)
  redis.call('ZADD', KEYS[2], 0, uncoded(code))
  redis.call('ZADD', KEYS[3], digits(at + milliseconds), code)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', digits(at), 'LIMIT', 0, 2)) do
    local left = redis.call('PTTL', head .. '{' .. old .. '}')
    if left == -2 then
      leave_index(old)
    else
      redis.call('ZADD', KEYS[3], digits(at + math.max(left, 1000)), old)
    end
  end
end

-- Write the record with a rev that no record of this key has had.
local function write_record(record)
  local is_new = not record.rev
  record.rev = digits(math.max((record.rev or 0) + 1, now))
  record.updated_at = digits(now)
  local milliseconds = lifetime({ record.holders, record.queue })
  -- The index first: if it cannot be written, nothing has been.
  if is_new and KEYS[2] then enter_index(milliseconds) end
  redis.call('SET', KEYS[1], table.concat({
    '{"v":1,"rev":', record.rev, ',"fence":', digits(record.fence),
    ',"updated_at":', record.updated_at, ',"freed":"', record.freed or '', '","holders":[\n',
    lines(record.holders), '],"queue":[\n', lines(record.queue), ']}',
  }), 'PX', digits(milliseconds))
end

-- The answer to a command: its name, the clock, the rev, and what belongs to it.
local function answer(record, name, ...)
  return { name, digits(now), record.rev or '', ... }
end

-- The answer to a command that changed nothing now, but may have done so before: WAIT is to
-- wait for that, so write the expiry that is there once more.
local function unchanged(record, name, ...)
  local left = ARGV[3] == '1' and record.rev and redis.call('PTTL', KEYS[1])
  if left and left > 0 then redis.call('PEXPIRE', KEYS[1], left) end
  return answer(record, name, ...)
end
