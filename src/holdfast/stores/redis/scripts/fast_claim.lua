-- Fast path: claim a free lock, a new one or one that has been used before. The answer is the
-- clock. An exclusive holder's fence is a whole range before it (see rule 3 of the rules), or else
-- it is told as well.
if not raw or string.sub(raw, -39) == ',"soonest":0,"holders":[\n],"queue":[\n]}' then
  local rev, fence = '0', '0'
  if raw then rev, fence = string.match(raw, '^{"v":1,"rev":(%d+),"fence":(%d+),') end
  local expires_at = string.format('%d', now + ARGV[3]) -- shorter where integers are too small
  if rev and now > tonumber(rev) and now > tonumber(fence) and #expires_at == #at then
    local first, whole = at, true
    if string.sub(ARGV[5], 1, 19) == ',"mode":"exclusive"' then
      whole = now - RANGE > tonumber(fence)
      first = string.format('%.0f', whole and now - RANGE or fence + 1)
    end
    local text = head_text(at, '', '0') .. ARGV[2] .. first .. ARGV[5] .. at
      .. ',"expires_at":' .. expires_at .. ARGV[7] .. '\n],"queue":[\n]}'
    if not raw and KEYS[2] then enter_index(ARGV[4]) end
    redis.call('SET', KEYS[1], text, 'PX', ARGV[4])
    if not whole then return { now, '', tonumber(first) } end
    return now
  end
end
