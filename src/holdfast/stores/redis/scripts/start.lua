-- Every command starts here: the clock, and what is stored.
--
--   KEYS[1]  the record      KEYS[2], KEYS[3]  the store's index, for what may enter a record
--                                              (absent in a cluster)
--   ARGV[1]  for how long a free record stays, in milliseconds
--   the last of ARGV, if it is '!': write something in any case, so that WAIT has a write to
--   wait for
--
-- The record is the JSON of `holdfast.core.records`, in one fixed layout: a head, then one
-- line per holder and per waiter. No JSON text has a line break inside, so lines and the
-- fields before `owner` can be taken apart by patterns, and whatever is not changed goes
-- back byte for byte. (cjson would not do: it prints 14 digits, and times have 16.)
-- `soonest` is when the first of the queue may run out: until then nobody has to look.
--
-- Lua's numbers are doubles. They count microseconds exactly until the year 2255.
--
-- The answer is one string of lines: its name, the clock, the rev, and what belongs to it.
--
-- Lua builds every function of a script anew in every run, and every string costs, an argument
-- most of all. So the usual cases have a fast path (`fast_*.lua`) before the functions of the full
-- rules: for a record in its usual form and a clock that has moved on since. Both must agree;
-- tests/stores/redis/test_fast_paths.py runs each script with and without its fast paths. Where
-- everything else follows from it, the answer of a fast path is the clock alone.
--
-- Loading a script joins a text that stands on two lines to keep them short (`.. ` at the end).
--

local MOST = 9007199254740991
-- The longest ttl, 30 days: no place in the queue can last longer.
local LONGEST = 2592000000000
-- At most so many numbers belong to an exclusive grant: see rule 3 of `holdfast.core.rules`.
local RANGE = 1000
-- A record until its first holder.
local HEAD = '^{"v":1,"rev":(%d+),"fence":(%d+),"updated_at":%d+,"freed":"([^"]*)",' ..
  '"soonest":(%d+),"holders":%[\n()'
-- What is between the holders and the queue. No text of JSON has a line break, so it is there once.
local BETWEEN = '],"queue":[\n'

-- A record of this size has a long queue, and is changed in place: see `write_record`.
local LONG = 16384

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local at = time[1] .. (#time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6))
local raw = redis.call('GET', KEYS[1])

-- How a place says that whoever frees the lock may grant it to it.
local function lease_text(lease)
  return lease == '' and ',' or ',"lease":' .. lease .. ','
end

-- A record that is written now, until its first holder.
local function head_text(fence, freed, soonest)
  return '{"v":1,"rev":' .. at .. ',"fence":' .. fence .. ',"updated_at":' .. at
    .. ',"freed":"' .. freed .. '","soonest":' .. soonest .. ',"holders":[\n'
end
