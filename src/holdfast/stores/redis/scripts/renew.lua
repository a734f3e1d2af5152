-- I am still here.
local mine, place = find(record.holders, ARGV[2])
if not mine or dead(mine) then
  return unchanged(record, 'not held')
end
mine.expires_at = digits(math.max(tonumber(mine.expires_at), now + mine.ttl))
mine.beat = ARGV[3]
local fence, rest = string.match(ARGV[4], '^(%d+) (.*)$') -- of the lease to which it was passed on
if fence and tonumber(fence) > tonumber(mine.fence) then mine.fence, mine.rest = fence, rest end
record.holders[place] = holder_of(mine)
record.freed = ''
write_record(record)
return granted(answer, record, mine, (living(record)))
