-- Let me in, or keep me a place in the queue.
--
-- ARGV[2], ARGV[5] and ARGV[7] are the holder's line, but for its fence, its start and its end;
-- ARGV[3] the ttl, ARGV[4] for how long a record with this holder stays; ARGV[6], of who would
-- queue, for how long its place lasts and its client's channel.
local claim = read_holder(ARGV[2] .. '0' .. ARGV[5] .. '0,"expires_at":0' .. ARGV[7])
local lasts, channel = string.match(ARGV[6], '^(%d+) (%x+)$')
local queueing = lasts and '1' or '0'

local holders, queue, soonest = alive(record.holders), living(record)
local swept = #holders < #record.holders or #queue < #record.queue
local start, stop = find_line(queue, claim.token)

-- Write it, and tell whom it lets in that the dead are gone.
local function write_claim()
  write_record(record)
  if swept and record.queue ~= '' then wake(record, next_up(record)) end
end

local mine = find(holders, claim.token)
if mine then
  return granted(unchanged, record, mine, without_line(queue, claim.token))
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
  local fence = next_fence(record)
  claim.fence, claim.acquired_at, claim.expires_at = digits(fence), at, expiry(claim.ttl)
  holders[#holders + 1] = holder_of(claim)
  queue = without_line(queue, claim.token)
  record = {
    rev = record.rev, fence = fence, soonest = queue == '' and 0 or soonest,
    holders = holders, queue = queue,
  }
  write_claim()
  return granted(answer, record, claim, queue)
end

local first, more = queue_head(ahead)
if not lasts then
  return unchanged(record, 'blocked', queueing, digits(more), array(holders), first)
end
local since = start and string.match(string.sub(queue, start, stop), '"since":(%d+)') or at
local owner = string.match(claim.rest, '^(.-),"note":') -- inside a text its quotes had backslashes
local place = string.format(
  '{"token":"%s","mode":"%s","ttl":%s,"since":%s,"expires_at":%.0f,"beat":"%s","limit":%s,%s,' ..
  '"bell":"%s"}',
  claim.token, claim.mode, lasts, since, now + lasts, claim.beat, claim.limit, owner, channel)
if start then
  queue = string.sub(queue, 1, start - 1) .. place .. string.sub(queue, stop + 1)
else
  soonest = queue == '' and MOST or soonest
  queue = joined(queue, place)
end
record = {
  rev = record.rev, fence = record.fence, soonest = math.min(soonest, now + lasts),
  holders = holders, queue = queue,
}
write_claim()
return answer(record, 'blocked', queueing, digits(more), array(holders), first)
