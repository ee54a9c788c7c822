-- Rates of tarantool/queue in process: tarantool tarantool.lua '{"kind": "fifo", "count": 1000, ...}'
-- Prints one line of JSON. The module is found by LUA_PATH; files are made in the working folder.
local clock = require('clock')
local fiber = require('fiber')
local json = require('json')

local asked = json.decode(arg[1])
box.cfg{wal_mode = 'write', memtx_memory = 1024 * 1024 * 1024, log_level = 1, log = 'bench.log', wal_dir_rescan_delay = 3600}
local queue = require('queue')

local options = {}
if asked.kind:match('ttl$') then options.ttl, options.ttr = 3600, 600 end
if asked.kind == 'limfifottl' then options.capacity = 2 * asked.count + 1000 end
if asked.storage_mode then options.storage_mode = asked.storage_mode end
local tube = queue.create_tube('bench', asked.kind, options)

local function payload(n) return {url = 'http://example.com/page', n = n} end

local function put(n)
    if asked.lanes > 0 then
        tube:put(payload(n), {utube = 'lane' .. math.floor(n * asked.lanes / asked.count)})
    else
        tube:put(payload(n))
    end
end

local function finish()
    local task = tube:take(asked.busy and asked.limit or 0)
    if task == nil then error('a task that was put could not be taken') end
    if asked.busy then fiber.yield() end
    tube:ack(task[1])
end

-- The work shared by fibers; one that is not done within the limit ends early. Answers how many, and how fast.
local function together(work, count)
    local fibers, done, start = {}, 0, clock.monotonic()
    for f = 1, asked.callers do
        fibers[f] = fiber.new(function()
            for n = f - 1, count - 1, asked.callers do
                if clock.monotonic() - start > asked.limit then break end
                work(n)
                done = done + 1
            end
        end)
        fibers[f]:set_joinable(true)
    end
    for _, each in ipairs(fibers) do
        local fine, problem = each:join()
        if not fine then error(problem) end
    end
    return done, done / (clock.monotonic() - start)
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
