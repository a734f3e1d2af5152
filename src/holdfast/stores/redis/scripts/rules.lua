-- The questions that the rules are made of, as in `holdfast.core.rules`.

local function dead(party)
  return party.expires_at ~= '0' and now > tonumber(party.expires_at)
end

local function alive(parties)
  local living = {}
  for _, party in ipairs(parties) do
    if not dead(party) then living[#living + 1] = party end
  end
  return living
end

local function find(parties, token)
  for place, party in ipairs(parties) do
    if party.token == token then return party, place end
  end
end

local function without(parties, token)
  local others = {}
  for _, party in ipairs(parties) do
    if party.token ~= token then others[#others + 1] = party end
  end
  return others
end

local function next_fence(record)
  return math.max(record.fence + 1, now)
end

local function expiry(ttl)
  return digits(now + ttl)
end

-- Whether a claim may sit beside the first `count` of these parties.
local function fits_beside(claim, before, count)
  if count == 0 then return true end
  if claim.mode == 'exclusive' then return false end
  local counted = claim.mode == 'counted'
  if counted and count >= tonumber(claim.limit) then return false end
  for place = 1, count do
    local party = before[place]
    if party.mode ~= claim.mode then return false end
    if counted and party.limit ~= claim.limit then return false end
  end
  return true
end

-- Whom a freed place may let in: the head of the queue and those who fit beside it.
local function next_up(record)
  local before, count, tokens = {}, 0, {}
  for _, holder in ipairs(record.holders) do
    count = count + 1
    before[count] = holder
  end
  for _, waiter in ipairs(record.queue) do
    if not fits_beside(waiter, before, count) then break end
    tokens[#tokens + 1] = waiter.token
    count = count + 1
    before[count] = waiter
  end
  return #tokens > 0 and table.concat(tokens, ' ') or '*'
end

-- Tell them. Without the right to publish they find out by looking, as they do anyway.
local function wake(record, whom)
  redis.pcall('PUBLISH', KEYS[1] .. ':wake', record.rev .. ' ' .. whom)
end

local record = read_record()
if not record then return { 'corrupt', digits(now), '' } end
