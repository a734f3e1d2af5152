-- Take whatever this token has here, a grant or a place in the queue.
local token = ARGV[2]
local holders, queue, waited = without(record.holders, token), without_line(record.queue, token)
if #holders == #record.holders and not waited then
  return unchanged(record, record.freed == token and 'freed' or 'not held')
end
record.holders, record.queue, record.freed = holders, queue, token
if is_empty(queue) then record.soonest = 0 end
local whom = next_up(record)
write_record(record)
wake(record, whom)
return answer(record, 'freed')
