-- An operator's word: throw out every holder, or the one with this fence.
local fence = ARGV[2]
local out, holders = {}, {}
for _, holder in ipairs(record.holders) do
  local list = (fence == '' or holder.fence == fence) and out or holders
  list[#list + 1] = holder
end
if #out == 0 then
  return unchanged(record, 'evicted', '')
end
record.fence, record.holders, record.freed = next_fence(record), holders, ''
local whom = next_up(record)
write_record(record)
wake(record, whom)
return answer(record, 'evicted', array(out))
