-- Rates of tarantool/queue in process: tarantool tarantool.lua '{"kind": "fifo", "count": 1000, ...}'
-- Prints one line of JSON. The module is found by LUA_PATH; files are made in the working folder.
local fiber = require('fiber')
local json = require('json')
package.path = (arg[0]:match('^.*/') or './') .. '?.lua;' .. package.path
local work = require('work')

local asked = json.decode(arg[1])
box.cfg{wal_mode = 'write', memtx_memory = 1024 * 1024 * 1024, log_level = 1, log = 'bench.log', wal_dir_rescan_delay = 3600}
local queue = require('queue')

local options = work.times(asked.kind)
if asked.kind == 'limfifottl' then options.capacity = 2 * asked.count + 1000 end
if asked.storage_mode then options.storage_mode = asked.storage_mode end
local tube = queue.create_tube('bench', asked.kind, options)

local function put(n)
    if asked.lanes > 0 then
        tube:put(work.payload(n), {utube = 'lane' .. math.floor(n * asked.lanes / asked.count)})
    else
        tube:put(work.payload(n))
    end
end

local function finish()
    local task = tube:take(asked.busy and asked.limit or 0)
    if task == nil then error('a task that was put could not be taken') end
    if asked.busy then fiber.yield() end
    tube:ack(task[1])
end

local function together(each, count)
    return work.together(count, asked.callers, asked.limit, each)
end

local warm = math.max(1, math.min(200, math.floor(asked.count / 10)))
if not asked.busy then
    together(put, warm)
    together(finish, warm)
end
local stored, put_rate = together(put, asked.count)
local _, take_rate = together(finish, stored)
print(json.encode({put = put_rate, take = take_rate, tarantool = _TARANTOOL, queue = queue._VERSION}))
os.exit(0)
