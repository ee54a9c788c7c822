-- What the scripts of this folder do alike: package.path has to name the folder.
local clock = require('clock')
local fiber = require('fiber')

local function payload(n) return {url = 'http://example.com/page', n = n} end

-- Calls work(n, caller) for every n below count, shared by fibers; what is not begun within the limit, in seconds, is
-- not done. Answers how many were done, and how fast.
local function together(count, callers, limit, work)
    local fibers, done, start = {}, 0, clock.monotonic()
    for c = 1, callers do
        fibers[c] = fiber.new(function()
            for n = c - 1, count - 1, callers do
                if clock.monotonic() - start > limit then break end
                work(n, c)
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

-- How long tasks live and may be worked on, for kinds that have times.
local function times(kind)
    return kind:match('ttl$') and {ttl = 3600, ttr = 600} or {}
end

return {payload = payload, times = times, together = together}
