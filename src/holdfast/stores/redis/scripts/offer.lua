-- I give up my grant; whoever brings the ticket may take it.
local token, ticket, ttl = ARGV[4], ARGV[5], ARGV[6]
local offered = find(record.holders, ticket)
if offered then
  return granted(unchanged, record, offered, '')
end
local mine = find(record.holders, token)
if not mine or dead(mine) then
  return unchanged(record, 'not held')
end
local holders = without(record.holders, token)
mine.token, mine.ttl, mine.expires_at = ticket, ttl, expiry(ttl)
mine.beat, mine.offered = ARGV[1], 'true'
holders[#holders + 1] = holder_of(mine)
record.holders, record.freed = holders, ''
write_record(record)
return granted(answer, record, mine, '')
