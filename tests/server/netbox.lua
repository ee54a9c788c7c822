-- Calls functions over net.box: tarantool netbox.lua PORT, with lines of JSON on stdin, [function, arg, ..].
-- Prints a line of JSON for each: [true, result, ..] or [false, code, text].
-- A function with an ! behind it is not waited for: its result comes at the end, in the order of calls.
local json = require('json')
local netbox = require('net.box')

local connection = netbox.connect('127.0.0.1:' .. arg[1])
assert(connection:ping(), connection.error)
local futures = {}

local function show(ok, result)
    if ok then
        print(json.encode({true, result}))
    else
        -- Errors of Lua itself have no code in net.box; on the wire theirs is 32.
        print(json.encode({false, result.code or result.type == 'LuajitError' and 32, result.message}))
    end
end

for line in io.stdin:lines() do
    local call = json.decode(line)
    local name = table.remove(call, 1)
    if name:sub(-1) == '!' then
        table.insert(futures, connection:call(name:sub(1, -2), call, {is_async = true}))
    else
        show(pcall(function() return {connection:call(name, call)} end))
    end
end
for _, future in ipairs(futures) do
    local result, failure = future:wait_result(30)
    show(result ~= nil, result or failure)
end
connection:close()
os.exit(0)
