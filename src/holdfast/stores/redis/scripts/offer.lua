-- I give up my grant; whoever brings the ticket may take it.
local token, beat, ticket, ttl = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local offered = find(record.holders, ticket)
if offered then
  return granted(unchanged, record, offered)
end
local mine = find(record.holders, token)
if not mine or dead(mine) then
  return unchanged(record, 'not held')
end
local holders = without(record.holders, token)
mine.token, mine.ttl, mine.expires_at = ticket, ttl, expiry(ttl)
mine.beat, mine.offered = beat, 'true'
holders[#holders + 1] = holder_of(mine)
record.holders, record.freed = holders, ''
write_record(record)
return granted(answer, record, mine)
