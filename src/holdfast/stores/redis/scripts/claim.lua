-- Let me in, or keep me a place in the queue.
local claim = { token = ARGV[4], mode = ARGV[5], ttl = ARGV[6], limit = ARGV[7] }
local rest, queueing, patience, waiter_rest = ARGV[8], ARGV[9] == '1', ARGV[10], ARGV[11]

local holders, queue = alive(record.holders), alive(record.queue)
local mine = find(holders, claim.token)
if mine then
  return unchanged(record, 'granted', mine.text, array(without(queue, claim.token)))
end
if claim.mode == 'counted' then
  for _, holder in ipairs(holders) do
    if holder.mode == 'counted' and holder.limit ~= 'null' and holder.limit ~= claim.limit then
      return unchanged(record, 'mismatch', holder.limit)
    end
  end
end

local before, count, ahead = {}, 0, {}
for _, holder in ipairs(holders) do
  count = count + 1
  before[count] = holder
end
for _, waiter in ipairs(queue) do
  if waiter.token == claim.token then break end
  count = count + 1
  before[count] = waiter
  ahead[#ahead + 1] = waiter
end

if fits_beside(claim, before, count) then
  local fence = next_fence(record)
  local holder = holder_of({
    token = claim.token, fence = digits(fence), mode = claim.mode, ttl = claim.ttl,
    acquired_at = digits(now), expires_at = expiry(claim.ttl), beat = ARGV[1],
    limit = claim.limit, offered = 'false', rest = rest,
  })
  holders[#holders + 1] = holder
  queue = without(queue, claim.token)
  local granted = { rev = record.rev, fence = fence, holders = holders, queue = queue }
  write_record(granted)
  return answer(granted, 'granted', holder.text, array(queue))
end

local blocked = { array(holders), array(ahead), ARGV[9] }
if not queueing then
  return unchanged(record, 'blocked', unpack(blocked))
end
local _, place = find(queue, claim.token)
queue[place or #queue + 1] = waiter_of({
  token = claim.token, mode = claim.mode, ttl = patience,
  since = place and queue[place].since or digits(now), expires_at = expiry(patience),
  beat = ARGV[1], limit = claim.limit, rest = waiter_rest,
})
local waiting = { rev = record.rev, fence = record.fence, holders = holders, queue = queue }
write_record(waiting)
return answer(waiting, 'blocked', unpack(blocked))
