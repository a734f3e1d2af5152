-- The questions that the rules are made of, as in `holdfast.core.rules`.

local function dead(party)
  return party.expires_at ~= '0' and now > tonumber(party.expires_at)
end

local function alive(holders)
  local living_ones = {}
  for _, holder in ipairs(holders) do
    if not dead(holder) then living_ones[#living_ones + 1] = holder end
  end
  return living_ones
end

local function find(holders, token)
  for place, holder in ipairs(holders) do
    if holder.token == token then return holder, place end
  end
end

local function without(holders, token)
  local others = {}
  for _, holder in ipairs(holders) do
    if holder.token ~= token then others[#others + 1] = holder end
  end
  return others
end

-- A record with the largest fence can be read, and nobody can be granted more.
local function next_fence(record)
  if record.fence >= MOST - 1 then error('HOLDFAST this record cannot be used') end
  return math.max(record.fence + 1, now)
end

-- The first of the numbers of a new grant; the last is the record's next fence.
local function first_fence(mode, record, last)
  return mode == 'exclusive' and math.max(record.fence + 1, last - RANGE) or last
end

local function expiry(ttl)
  return digits(now + ttl)
end

-- Whether a claim may sit beside this party, if there is room at all.
local function goes_with(claim, party)
  if party.mode ~= claim.mode then return false end
  return claim.mode == 'shared' or claim.mode == 'counted' and party.limit == claim.limit
end

-- Whether a claim may sit beside these holders and these waiters before it.
local function fits_beside(claim, holders, ahead)
  local count, fits = 0, true
  local function look(party)
    count = count + 1
    fits = goes_with(claim, party)
      and (claim.mode ~= 'counted' or count < (tonumber(claim.limit) or 0))
    return not fits
  end
  for _, holder in ipairs(holders) do
    if look(holder) then return false end
  end
  if ahead then each_waiter(ahead, look) end
  return fits
end

-- Whom a freed place may let in: the first in the queue and those who fit beside it; nobody,
-- if they do not fit beside those who still hold. nil, if nobody is in the queue: anyone.
local function next_up(record)
  local holders = alive(record.holders)
  local count, last, waited_for, waiters = #holders, nil, false, {}
  each_waiter(record.queue, function(waiter)
    if dead(waiter) then return false end
    waited_for = true
    -- Who goes with the last one goes with all before it.
    local fits = last and goes_with(waiter, last)
      and (waiter.mode ~= 'counted' or count < (tonumber(waiter.limit) or 0))
    if not last then fits = fits_beside(waiter, holders) end
    if not fits then return true end
    waiters[#waiters + 1] = waiter
    count, last = count + 1, waiter
  end)
  return waited_for and waiters or nil
end

-- How a waiter is named on its client's channel: by a hash of its token, which is a secret. Clients
-- up to 0.1.0, whose channels have 12 digits, know only the token.
local function name_of(token, client)
  return #client > 12 and string.sub(redis.sha1hex(token), 1, 16) or token
end

-- Tell them, each on its own client's channel, so that no other client wakes for nothing.
-- Without the right to publish they find out by looking, as they do anyway.
local function wake(record, waiters)
  local common, told = KEYS[1] .. ':wake', {}
  if not waiters then told[common] = ' *' end
  for _, waiter in ipairs(waiters or {}) do
    local client = string.match(waiter.text, ',"bell":"(%x+)"}$')
    if client then
      local channel = common .. ':' .. client
      told[channel] = (told[channel] or '') .. ' ' .. name_of(waiter.token, client)
    else
      told[common] = ' *'
    end
  end
  for channel, whom in pairs(told) do
    redis.pcall('PUBLISH', channel, record.rev .. whom)
  end
end

-- The answer to a holder: its grant, and who waits behind it.
local function granted(reply, record, holder, queue)
  return reply(record, 'granted', holder.text, queue and (queue_head(queue)) or '')
end

local record = read_record()
if not record then return 'corrupt\n' .. at .. '\n' end
