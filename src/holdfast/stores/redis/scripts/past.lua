-- What is remembered of a key: how its last grants ended that were not released, as JSON of
-- `holdfast.core.records.Happening`, in a list beside the record. Nothing depends on it, so
-- nothing fails if it cannot be written.
local function remember(holder, what, by, why)
  local name = KEYS[1] .. ':past'
  local owner = string.match(holder.rest, '^"owner":(".-"),"note":') or '""'
  -- Nothing ends before it began, although the clock may have been set back meanwhile.
  local ended = tonumber(holder.acquired_at) > now and holder.acquired_at or at
  redis.pcall('RPUSH', name, table.concat({
    '["' .. what .. '"', ended, owner, holder.fence, holder.acquired_at, by, why .. ']',
  }, ','))
  redis.pcall('LTRIM', name, -5, -1)
  redis.pcall('PEXPIRE', name, ARGV[1])
end
