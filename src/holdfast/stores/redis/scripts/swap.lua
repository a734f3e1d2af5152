-- Write a record if its version is still this one; an empty one deletes.
--
-- ARGV[2] the version, empty for none; ARGV[3] the record's text after its rev, empty to
-- delete; ARGV[4] for how many milliseconds it stays; ARGV[5] whom to wake, '' for nobody.
local rev = raw and counted(string.match(raw, '^{"v":%d+,"rev":(%d+),'))
local version = raw and (rev or redis.sha1hex(raw)) or ''
if version ~= ARGV[2] then
  return { 'conflict', at, raw }
end
local written = digits(math.max((rev or 0) + 1, now))
if ARGV[3] ~= '' then
  if not raw and KEYS[2] then enter_index(tonumber(ARGV[4])) end
  redis.call('SET', KEYS[1], '{"v":1,"rev":' .. written .. ARGV[3], 'PX', ARGV[4])
elseif raw then
  redis.call('DEL', KEYS[1])
  if KEYS[2] then leave_index(string.match(KEYS[1], '{(.*)}$')) end
end
if ARGV[5] ~= '' then
  redis.pcall('PUBLISH', KEYS[1] .. ':wake', written .. ' ' .. ARGV[5])
end
return { 'swapped', at, ARGV[3] ~= '' and written or '' }
