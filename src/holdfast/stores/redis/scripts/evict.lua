-- An operator's word: throw out the holders with these fences and the waiters with these tokens
-- (which are quoted), and nobody who came later.
local fences = {}
for fence in string.gmatch(ARGV[2], '%d+') do fences[fence] = true end
local out, holders = {}, {}
for _, holder in ipairs(record.holders) do
  local list = fences[holder.fence] and out or holders
  list[#list + 1] = holder
end
local tokens, queue = {}, record.queue
for token in string.gmatch(ARGV[3], '"([^"]*)"') do tokens[token] = true end
if next(tokens) then queue = sifted(queue, function(waiter) return tokens[waiter.token] end) end
if #out == 0 and queue == record.queue then
  return unchanged(record, 'evicted', '')
end
if #out > 0 then record.fence = next_fence(record) end
record.holders, record.queue, record.freed = holders, queue, ''
if is_empty(queue) then record.soonest = 0 end
local whom = next_up(record)
write_record(record)
for _, holder in ipairs(out) do remember(holder, 'evicted', ARGV[4], ARGV[5]) end
wake(record, whom)
return answer(record, 'evicted', array(out))
