-- I bring the ticket of an offered grant, and hold it from now on.
local token, beat, ticket, ttl, owner, note = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local mine = find(record.holders, token)
if mine and not dead(mine) then
  return granted(unchanged, record, mine, (living(record)))
end
local offered = find(record.holders, ticket)
if not offered or offered.offered ~= 'true' or dead(offered) then
  return unchanged(record, 'not held')
end
if note == '' then -- keep the note of the party before
  note = string.match(offered.rest, '^"owner":".-","note":(.*)$')
end
local fence = next_fence(record)
local taken = holder_of({
  token = token, fence = digits(fence), mode = offered.mode, ttl = ttl,
  acquired_at = at, expires_at = expiry(ttl), beat = beat, limit = offered.limit,
  offered = 'false', rest = '"owner":' .. owner .. ',"note":' .. note,
})
local holders = without(record.holders, ticket)
holders[#holders + 1] = taken
record.fence, record.holders, record.freed = fence, holders, ''
write_record(record)
remember(offered, 'handed over', owner, '""')
return granted(answer, record, taken, (living(record)))
