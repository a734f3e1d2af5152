-- The record as it is, and the clock: a party that is dead by this time was so in this record.
-- And what is remembered of the key: see past.lua.
local past = redis.pcall('LRANGE', KEYS[1] .. ':past', 0, -1)
return { at, raw, past.err and {} or past }
