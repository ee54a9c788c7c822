-- A queue over the network: tarantool net.lua '{"mode": "serve", ...}' is tarantool/queue on a port,
-- '{"mode": "drive", ...}' is a client program with many connections that does the same to any server.
-- Driving prints one line of JSON.
local clock = require('clock')
local json = require('json')
local net_box = require('net.box')
package.path = (arg[0]:match('^.*/') or './') .. '?.lua;' .. package.path
local work = require('work')

local asked = json.decode(arg[1])
local CREATE = 'local name, type, cfg = ... ; queue.create_tube(name, type, cfg)'

local function serve()
    box.cfg{
        wal_mode = 'write', memtx_memory = 1024 * 1024 * 1024, log_level = 1, log = 'bench.log',
        wal_dir_rescan_delay = 3600, listen = '127.0.0.1:' .. asked.port,
    }
    box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
    rawset(_G, 'queue', require('queue'))
    print('ready')
    io.flush()
end

local function drive()
    local connections, puts = {}, {}
    for c = 1, asked.callers do
        connections[c] = net_box.connect('127.0.0.1:' .. asked.port)
        if not connections[c]:ping() then error('no connection: ' .. tostring(connections[c].error)) end
    end
    connections[1]:eval(CREATE, {'bench', asked.kind, work.times(asked.kind)})

    local function cycle(connection, n, timed)
        local before = clock.monotonic()
        connection:call('queue.tube.bench:put', {work.payload(n)})
        if timed then puts[#puts + 1] = clock.monotonic() - before end
        local task = connection:call('queue.tube.bench:take', {10})
        if task == nil then error('a task that was put could not be taken') end
        connection:call('queue.tube.bench:ack', {task[1]})
    end

    local function together(count, callers, timed)
        return work.together(count, callers, asked.limit, function(n, c) cycle(connections[c], n, timed) end)
    end

    local warm = together(math.max(asked.callers, math.floor(asked.count / 10)), asked.callers, false)
    local cpu = clock.proc()
    local done, rate = together(asked.count, asked.callers, false)
    cpu = clock.proc() - cpu
    local single = together(500, 1, true)
    table.sort(puts)
    local p50 = 1000 * puts[math.ceil(#puts / 2)]
    print(json.encode({rate = rate, cpu = cpu, done = done, cycles = warm + done + single, put_ms = p50}))
    os.exit(0)
end

if asked.mode == 'serve' then serve() else drive() end
