-- Take whatever this token has here, a grant or a place in the queue.
local token = ARGV[2]
local holders, queue, waited = without(record.holders, token), without_line(record.queue, token)
if #holders == #record.holders and not waited then
  return unchanged(record, record.freed == token and 'freed' or 'not held')
end
local ended = #record.holders > 0 and #holders == 0
record.holders, record.queue, record.freed = holders, queue, token
local heir = ended and not is_empty(queue) and heir_at(queue.text, queue.first, record.fence)
if heir then
  record.fence, record.holders = heir.last, { read_holder(heir.line) }
  record.queue = stretch(queue.text, heir.next, queue.last, queue.without)
end
if is_empty(record.queue) then record.soonest = 0 end
if heir then
  write_record(record)
  tell(heir, record.rev)
  return answer(record, 'freed')
end
local whom = next_up(record)
write_record(record)
wake(record, whom)
return answer(record, 'freed')
