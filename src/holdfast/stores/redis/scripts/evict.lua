-- An operator's word: throw out the holders with these fences, and nobody who came later.
local fences = {}
for fence in string.gmatch(ARGV[2], '%d+') do fences[fence] = true end
local out, holders = {}, {}
for _, holder in ipairs(record.holders) do
  local list = fences[holder.fence] and out or holders
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
