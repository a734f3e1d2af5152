-- Write a record if its version is still this one; an empty one deletes.
--
-- ARGV[4] the version, empty for none; ARGV[5] the record's text after its rev, empty to
-- delete; ARGV[6] for how many milliseconds it stays; ARGV[7] whom to wake, '' for nobody.
local rev = raw and string.match(raw, '^{"v":%d+,"rev":(%d+),')
local version = raw and (rev or redis.sha1hex(raw)) or ''
if version ~= ARGV[4] then
  return { 'conflict', at, raw or '' }
end
local written = digits(math.max((rev or 0) + 1, now))
if ARGV[5] ~= '' then
  if not raw and KEYS[2] then enter_index(tonumber(ARGV[6])) end
  redis.call('SET', KEYS[1], '{"v":1,"rev":' .. written .. ARGV[5], 'PX', ARGV[6])
elseif raw then
  redis.call('DEL', KEYS[1])
  if KEYS[2] then leave_index(string.match(KEYS[1], '{(.*)}$')) end
end
if ARGV[7] ~= '' then
  redis.pcall('PUBLISH', KEYS[1] .. ':wake', written .. ' ' .. ARGV[7])
end
return { 'swapped', at, ARGV[5] ~= '' and written or '' }
