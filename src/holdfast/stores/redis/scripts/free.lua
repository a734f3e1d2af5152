-- Take whatever this token has here, a grant or a place in the queue.
local token = ARGV[4]
local holders, queue = without(record.holders, token), without(record.queue, token)
if #holders == #record.holders and #queue == #record.queue then
  return unchanged(record, record.freed == token and 'freed' or 'not held')
end
local freed = { rev = record.rev, fence = record.fence, holders = holders, queue = queue }
freed.freed = token
write_record(freed)
wake(freed, next_up(freed))
return answer(freed, 'freed')
