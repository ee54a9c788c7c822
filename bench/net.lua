-- A queue over the network: tarantool net.lua '{"mode": "serve", ...}' is tarantool/queue on a port,
-- '{"mode": "drive", ...}' is a client program with many connections that does the same to any server.
-- Driving prints one line of JSON.
local clock = require('clock')
local fiber = require('fiber')
local json = require('json')
local net_box = require('net.box')

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

local function payload(n) return {url = 'http://example.com/page', n = n} end

local function drive()
    local connections, puts = {}, {}
    for c = 1, asked.callers do
        connections[c] = net_box.connect('127.0.0.1:' .. asked.port)
        if not connections[c]:ping() then error('no connection: ' .. tostring(connections[c].error)) end
    end
    local options = {}
    if asked.kind:match('ttl$') then options.ttl, options.ttr = 3600, 600 end
    connections[1]:eval(CREATE, {'bench', asked.kind, options})

    local function cycle(connection, n, timed)
        local before = clock.monotonic()
        connection:call('queue.tube.bench:put', {payload(n)})
        if timed then puts[#puts + 1] = clock.monotonic() - before end
        local task = connection:call('queue.tube.bench:take', {10})
        if task == nil then error('a task that was put could not be taken') end
        connection:call('queue.tube.bench:ack', {task[1]})
    end

    -- The work shared by connections; what is not done within the limit is not done.
    local function together(count, callers, timed)
        local fibers, done, start = {}, 0, clock.monotonic()
        for c = 1, callers do
            fibers[c] = fiber.new(function()
                for n = c, count, callers do
                    if clock.monotonic() - start > asked.limit then break end
                    cycle(connections[c], n, timed)
                    done = done + 1
                end
            end)
            fibers[c]:set_joinable(true)
        end
        for _, each in ipairs(fibers) do
            local fine, problem = each:join()
            if not fine then error(problem) end
        end
        return done, done / (clock.monotonic() - start)
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
