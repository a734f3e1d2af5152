-- The store's index of all keys; none in a cluster.

local function digits(number)
  return string.format('%.0f', number)
end

local function uncoded(code)
  return (string.gsub(code, '%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end))
end

local function leave_index(code)
  redis.call('ZREM', KEYS[2], uncoded(code))
  redis.call('ZREM', KEYS[3], code)
end

-- The index is two sorted sets: the keys in their order, and when to look whether a record
-- has gone by itself. Each new record looks after two old ones, so nothing piles up.
local function enter_index(milliseconds)
  local head, code = string.match(KEYS[1], '^(.*:){(.*)}$')
  local at = math.floor(now / 1000)
  redis.call('ZADD', KEYS[2], 0, uncoded(code))
  redis.call('ZADD', KEYS[3], digits(at + milliseconds), code)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', digits(at), 'LIMIT', 0, 2)) do
    local left = redis.call('PTTL', head .. '{' .. old .. '}')
    if left == -2 then
      leave_index(old)
    else
      redis.call('ZADD', KEYS[3], digits(at + math.max(left, 1000)), old)
    end
  end
end
