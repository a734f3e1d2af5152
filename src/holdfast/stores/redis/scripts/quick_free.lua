-- The short way out for the only holder of a lock for which nobody waits.
if raw then
  local rev, fence, token, rest = string.match(raw, '^{"v":1,"rev":(%d+),"fence":(%d+),"updated_at":%d+,"freed":"[^"]*","soonest":%d+,"holders":%[\n{"token":"([^"]*)"()')
  local line_end = token == ARGV[4] and string.find(raw, '\n', rest, true)
  if line_end and string.sub(raw, line_end) == '\n],"queue":[\n]}' and tonumber(fence) < MOST then
    rev = rev + 1 > now and string.format('%.0f', rev + 1) or at
    local written = redis.pcall('SET', KEYS[1], '{"v":1,"rev":' .. rev .. ',"fence":' .. fence .. ',"updated_at":' .. at .. ',"freed":"' .. token .. '","soonest":0,"holders":[\n],"queue":[\n]}', 'PX', ARGV[2])
    if written.err then redis.call('DEL', KEYS[1]) end -- out of memory: no tombstone then
    redis.pcall('PUBLISH', KEYS[1] .. ':wake', rev .. ' *')
    return 'freed\n' .. at .. '\n' .. rev
  end
end
