-- Rule 7 of `holdfast.core.rules`: whoever frees a lock grants it to the first in the queue, if
-- that one can be told at once. Its client is there if it listens.

local HEIR = '^{"token":"([^"]*)","mode":"exclusive","ttl":(%d+),"since":%d+,"expires_at":(%d+),' ..
  '"beat":"([^"]*)","limit":%w+,("owner":[^\n]-),"lease":(%d+),"bell":"(%x+)"}(,?)\n?()'

local function listens(channel)
  local reply = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return not reply.err and reply[2] > 0
end

-- The heir of a lock that is freed now, whose queue starts here in a text: how it holds the lock.
-- `next` is where the queue goes on, `before` the record's fence.
local function heir_at(text, start, before)
  local token, ttl, ends, beat, owner, lease, client, comma, next = string.match(text, HEIR, start)
  ends = tonumber(ends)
  if not token or now > ends or ends > now + LONGEST or before >= MOST - 1 then return end
  local channel = KEYS[1] .. ':wake:' .. client
  if not listens(channel) then return end
  local last = math.max(before + 1, now)
  local fence = string.format('%.0f', math.max(before + 1, last - RANGE))
  local expires_at = string.format('%.0f', math.max(now, ends - ttl) + lease)
  local line = '{"token":"' .. token .. '","fence":' .. fence .. ',"mode":"exclusive","ttl":'
    .. lease .. ',"acquired_at":' .. at .. ',"expires_at":' .. expires_at .. ',"beat":"' .. beat
    .. '","limit":null,"offered":false,' .. owner .. ',"note":{}}'
  local notice = table.concat({
    beat, fence, string.format('%.0f', last), at, expires_at, comma == '' and '0' or '1',
  }, ' ')
  return {
    line = line, last = last, next = next, channel = channel,
    stays_ms = ARGV[1] + math.ceil((expires_at - now) / 1000),
    notice = string.sub(redis.sha1hex(token), 1, 16) .. ' ' .. notice .. ' '
      .. redis.sha1hex(token .. notice .. token),
  }
end

-- Tell the heir what was written: see `holdfast.stores.waiting.notices`.
local function tell(heir, rev)
  redis.pcall('PUBLISH', heir.channel, rev .. ' ' .. heir.notice)
end
