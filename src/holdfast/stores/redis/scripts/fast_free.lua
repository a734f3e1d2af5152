-- Fast path: free the only holder of a lock for which nobody waits, or for which an exclusive
-- claim is first in the queue; it may be the heir.
local rev, fence, _, soonest, first = string.match(raw and #raw < LONG and raw or '', HEAD)
if rev and now > tonumber(rev) and tonumber(fence) < MOST and string.sub(raw, -2) == ']}' then
  local token = ARGV[2]
  local mine = '{"token":"' .. token .. '",'
  local is_mine = string.sub(raw, first, first + #mine - 1) == mine
  local stop = is_mine and string.find(raw, '\n', first, true)
  if stop and string.sub(raw, stop + 1, stop + #BETWEEN) == BETWEEN then
    local freed = head_text(fence, token, soonest) .. string.sub(raw, stop + 1)
    local queue = stop + #BETWEEN + 1
    if string.sub(raw, queue) == ']}' then
      local written = redis.pcall('SET', KEYS[1], freed, 'PX', ARGV[1])
      if written.err then redis.call('DEL', KEYS[1]) end -- out of memory: no tombstone then
      redis.pcall('PUBLISH', KEYS[1] .. ':wake', at .. ' *')
      return now
    end
    local lives = now <= tonumber(soonest) and tonumber(soonest) <= now + LONGEST
    local heir = lives and now > tonumber(fence) and heir_at(raw, queue, tonumber(fence))
    if heir then
      local rest = string.sub(raw, heir.next)
      local head = head_text(at, token, rest == ']}' and '0' or soonest)
      local stays = string.format('%.0f', heir.stays_ms)
      redis.call('SET', KEYS[1], head .. heir.line .. '\n' .. BETWEEN .. rest, 'PX', stays)
      tell(heir, at)
      return now
    end
    local next_token = string.match(raw, '^{"token":"([^"]*)","mode":"exclusive",', queue)
    local channel = next_token and string.match(raw, '^[^\n]*,"bell":"(%x+)"},?\n', queue)
    if channel and lives then
      redis.call('SET', KEYS[1], freed, 'PX', ARGV[1])
      if #channel > 12 then next_token = string.sub(redis.sha1hex(next_token), 1, 16) end
      redis.pcall('PUBLISH', KEYS[1] .. ':wake:' .. channel, at .. ' ' .. next_token)
      return now
    end
  end
end
