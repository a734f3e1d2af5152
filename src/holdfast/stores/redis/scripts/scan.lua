-- A page of records in the order of their keys, and out of the index with those that are gone.
--
-- KEYS[2] and KEYS[3] are the index; ARGV[2] and ARGV[3] where the page starts and the prefix
-- ends, ARGV[4] how many keys, ARGV[5] what comes before the key in a record's name.
local keys = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
local page = { at, #keys > 0 and keys[#keys] or '', #keys }
for _, key in ipairs(keys) do
  local code = string.gsub(key, '[%%{}]', function(char)
    return string.format('%%%02X', string.byte(char))
  end)
  local raw = redis.pcall('GET', ARGV[5] .. '{' .. code .. '}')
  if raw then
    page[#page + 1] = key
    page[#page + 1] = type(raw) == 'string' and raw or ''
  else
    leave_index(code)
  end
end
return page
