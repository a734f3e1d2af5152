-- Let me in, or keep me a place in the queue.
local claim = { token = ARGV[4], mode = ARGV[5], ttl = ARGV[6], limit = ARGV[7] }
local rest, queueing, patience, waiter_rest = ARGV[8], ARGV[9] == '1', ARGV[10], ARGV[11]

local holders, queue, soonest = alive(record.holders), living(record)
local start, stop = find_line(queue, claim.token)
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
  local holder = holder_of({
    token = claim.token, fence = digits(fence), mode = claim.mode, ttl = claim.ttl,
    acquired_at = at, expires_at = expiry(claim.ttl), beat = ARGV[1],
    limit = claim.limit, offered = 'false', rest = rest,
  })
  holders[#holders + 1] = holder
  queue = without_line(queue, claim.token)
  record = {
    rev = record.rev, fence = fence, soonest = queue == '' and 0 or soonest,
    holders = holders, queue = queue,
  }
  write_record(record)
  return granted(answer, record, holder, queue)
end

local first, more = shown(ahead)
if not queueing then
  return unchanged(record, 'blocked', ARGV[9], digits(more), array(holders), first)
end
local since = start and string.match(string.sub(queue, start, stop), '"since":(%d+)') or at
local place = string.format(
  '{"token":"%s","mode":"%s","ttl":%s,"since":%s,"expires_at":%.0f,"beat":"%s","limit":%s,%s}',
  claim.token, claim.mode, patience, since, now + patience, ARGV[1], claim.limit, waiter_rest)
if start then
  queue = string.sub(queue, 1, start - 1) .. place .. string.sub(queue, stop + 1)
else
  soonest = queue == '' and MOST or soonest
  queue = joined(queue, place)
end
record = {
  rev = record.rev, fence = record.fence, soonest = math.min(soonest, now + patience),
  holders = holders, queue = queue,
}
write_record(record)
return answer(record, 'blocked', ARGV[9], digits(more), array(holders), first)
