-- Enter a record into the index, if there is one.
local left = redis.call('PTTL', KEYS[1])
if left > 0 then enter_index(left) end
return digits(left)
