-- Let me in, or keep me a place in the queue.
--
-- ARGV[2], ARGV[5] and ARGV[7] are the holder's line, but for its fence, its start and its end;
-- ARGV[3] the ttl, ARGV[4] for how long a record with this holder stays; ARGV[6], of who would
-- queue, for how long its place lasts, its client's channel, and the ttl if it may inherit.
local claim = read_holder(ARGV[2] .. '0' .. ARGV[5] .. '0,"expires_at":0' .. ARGV[7])
local lasts, channel, lease = string.match(ARGV[6], '^(%d+) (%x+) ?(%d*)$')
local queueing = lasts and '1' or '0'

local holders, queue, soonest = alive(record.holders), living(record)
local swept = #holders < #record.holders or queue ~= record.queue
local gone = {}
for _, holder in ipairs(record.holders) do
  if dead(holder) then gone[#gone + 1] = holder end
end
local start, stop = find_line(queue, claim.token)

-- Write it, and tell whom it lets in that the dead are gone.
local function write_claim(place, from, to)
  if swept and place then
    local text = table.concat(queue_pieces(record.queue, place, from, to))
    record.queue, place, from = stretch(text, 1, #text - 1)
  end
  write_record(record, place, from, to)
  for _, holder in ipairs(gone) do remember(holder, 'expired', '""', '""') end
  if swept and not is_empty(record.queue) then wake(record, next_up(record)) end
end

local mine = find(holders, claim.token)
if mine then
  queue = without_line(queue, claim.token)
  if not lease or lease == '' then return granted(unchanged, record, mine, queue) end
  return unchanged(record, 'inherited', mine.text, digits(record.fence), (queue_head(queue)))
end
if claim.mode == 'counted' then
  for _, holder in ipairs(holders) do
    if holder.mode == 'counted' and holder.limit ~= 'null' and holder.limit ~= claim.limit then
      return unchanged(record, 'mismatch', holder.limit)
    end
  end
end

local ahead = start and lines_before(queue, start) or queue
if fits_beside(claim, holders, ahead) then
  local last = next_fence(record)
  claim.fence = digits(first_fence(claim.mode, record, last))
  claim.acquired_at, claim.expires_at = at, expiry(claim.ttl)
  holders[#holders + 1] = holder_of(claim)
  queue = without_line(queue, claim.token)
  record = {
    rev = record.rev, fence = last, soonest = is_empty(queue) and 0 or soonest,
    holders = holders, queue = queue,
  }
  write_claim()
  return granted(answer, record, claim, queue)
end

local first, more = queue_head(ahead)
more = digits(count_lines(ahead, more))
if not lasts then
  return unchanged(record, 'blocked', queueing, more, array(holders), first)
end
local since = start and string.match(queue.text, '"since":(%d+)', start) or at
local owner = string.match(claim.rest, '^(.-),"note":') -- inside a text its quotes had backslashes
local place = string.format(
  '{"token":"%s","mode":"%s","ttl":%s,"since":%s,"expires_at":%.0f,"beat":"%s","limit":%s,%s' ..
  '%s"bell":"%s"}',
  claim.token, claim.mode, lasts, since, now + lasts, claim.beat, claim.limit, owner,
  lease_text(lease), channel)
soonest = is_empty(queue) and MOST or soonest
record = {
  rev = record.rev, fence = record.fence, soonest = math.min(soonest, now + lasts),
  holders = holders, queue = queue,
}
write_claim(place, start, stop)
return answer(record, 'blocked', queueing, more, array(holders), first)
