-- Statements of one tube, rendered once per tube by statements.py. {names} are filled in there.

-- name: create
CREATE TABLE {table} (
    seq           INTEGER PRIMARY KEY,
    {id_column}
    state         TEXT NOT NULL CHECK (seq = 0 OR {known_state}),
    reason        TEXT CHECK ({known_reason}),
    data          {data_rule},
    pri           INTEGER NOT NULL,
    lane          TEXT,
    key           TEXT,
    put_id        TEXT,
    attempt       INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,
    max_attempts  INTEGER,
    ttl           INTEGER,
    ttr           INTEGER,
    created_at    INTEGER NOT NULL,
    ready_at      INTEGER,
    expires_at    INTEGER,
    taken_at      INTEGER,
    deadline      INTEGER,
    done_at       INTEGER,
    purge_at      INTEGER,
    session       INTEGER,
    token         INTEGER,
    repeat        INTEGER,
    keep          INTEGER,
    cancel_asked  INTEGER NOT NULL DEFAULT 0,
    watched_until INTEGER,
    result        TEXT,
    error         TEXT,
    errors        TEXT,
    due_at        INTEGER,                -- when time alone will change the task
    place         INTEGER,                -- tubes with lanes: where it stands in the line; a taken one's slot
    CHECK ((state = 'taken') = (token IS NOT NULL)),
    CHECK (state <> 'done' OR done_at IS NOT NULL)
);

-- name: insert_head
-- Row 0 is no task: it holds what every verb of the tube reads and writes (head.py).
INSERT INTO {table} (seq, {head_id}state, data, pri, created_at) VALUES (0, {head_id_value}'head', ?, 0, 0);

-- name: load_head
SELECT data FROM {table} WHERE seq = 0;

-- name: save_head
UPDATE {table} SET data = ? WHERE seq = 0;

-- name: find_table
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = {table_name};

-- name: create_due_index
CREATE INDEX {due_index} ON {table} (due_at) WHERE due_at IS NOT NULL;

-- name: create_taken_index
CREATE INDEX {taken_index} ON {table} (session) WHERE state = 'taken';

-- name: create_buried_index
CREATE INDEX {buried_index} ON {table} ({order}) WHERE state = 'buried';

-- name: create_key_index
CREATE UNIQUE INDEX {key_index} ON {table} (key) WHERE key IS NOT NULL AND state <> 'done';

-- name: create_put_id_index
CREATE UNIQUE INDEX {put_id_index} ON {table} (put_id) WHERE put_id IS NOT NULL;

-- name: create_ready_index
CREATE INDEX {ready_index} ON {table} ({line}) WHERE state = 'ready'{in_line};

-- name: create_waiting_index
-- Who comes next in a lane. Strict lanes wait for delayed and buried tasks too.
CREATE INDEX {waiting_index} ON {table} (lane, {order}) WHERE {waiting};

-- name: create_slot_index
-- The one that stands in the line for its lane, and, where concurrency is limited, those that are taken.
CREATE INDEX {slot_index} ON {table} (lane, state) WHERE place IS NOT NULL AND lane IS NOT NULL;

-- name: drop_waiting_index
DROP INDEX IF EXISTS {waiting_index};

-- name: drop_ready_index
DROP INDEX IF EXISTS {ready_index};

-- name: drop
DROP TABLE {table};

-- name: drop_if_exists
DROP TABLE IF EXISTS {table};

-- name: truncate
DELETE FROM {table} WHERE seq > 0;

-- name: insert
INSERT INTO {table} ({stored}, due_at, place) VALUES ({marks}, ?, ?);

-- name: insert_fresh
-- What a fresh task without key has set; all else is the default.
INSERT INTO {table} ({fresh}) VALUES ({fresh_marks});

-- name: insert_alike
-- The same for tasks that differ in their data alone; the first parameter is the seq before the first.
INSERT INTO {table} ({fresh}) SELECT ?1 + rowid, ?2, value, {alike_marks} FROM carray({alike_array});

-- name: insert_in_lane
-- A lane without settings: the new task stands in the line if nobody of its lane does.
INSERT INTO {table} ({fresh}, lane, place)
VALUES ({numbered_marks}, ?1, CASE WHEN EXISTS (SELECT 1 FROM {table} WHERE lane = ?1 AND place IS NOT NULL) THEN NULL ELSE ?2 END);

-- name: insert_events
-- The events of tasks that were put together.
INSERT INTO penstock_events (at, tube, task_id, event, to_state, attempt, pri, lane, key, ready_at, delay, data)
SELECT created_at, ?1, seq, 'put', state, 0, pri, lane, key, ready_at,
    CASE WHEN state = 'delayed' THEN ready_at - created_at END, CASE WHEN ?2 THEN data END
FROM {table} WHERE seq >= ?3 ORDER BY seq;

-- name: find
SELECT {columns} FROM {table} WHERE {id} = ? AND seq > 0;

-- name: find_key
SELECT {columns} FROM {table} WHERE key = ? AND state <> 'done';

-- name: find_put_id
SELECT {columns} FROM {table} WHERE put_id = ?;

-- name: update
-- The last parameter says what becomes of the place: 0 it stays, 1 it is given up, 2 it becomes a slot.
UPDATE {table} SET {assignments}, due_at = ?, place = CASE ? WHEN 0 THEN place WHEN 1 THEN NULL ELSE seq END WHERE seq = ?;

-- name: set_place
UPDATE {table} SET place = ? WHERE seq = ?;

-- name: places_by_seq
-- Lanes are picked by turns from now on: who stands in the line does so by age.
UPDATE {table} SET place = seq WHERE place IS NOT NULL;

-- name: remove
DELETE FROM {table} WHERE seq = ?;

-- name: remove_all
DELETE FROM {table} WHERE seq IN (SELECT value FROM carray(?));

-- name: candidate
SELECT {columns} FROM {table} WHERE state = 'ready'{in_line} ORDER BY {line} LIMIT 1;

-- name: lane_candidate
SELECT {columns} FROM {table} WHERE lane = ? AND place IS NOT NULL AND state = 'ready';

-- name: candidates
SELECT {columns} FROM {table} WHERE state = 'ready'{in_line} ORDER BY {line} LIMIT ?;

-- name: grant
UPDATE {table}
SET state = 'taken', session = ?, token = ?, attempt = ?, taken_at = ?, deadline = ?, due_at = ?{slot_on_take}
WHERE seq = ?;

-- name: grant_alike
-- The same for tasks of one session and one deadline; the second parameter is the token before the first.
UPDATE {table}
SET state = 'taken', session = ?1, token = ?2 + given.rowid, attempt = attempt + 1, taken_at = ?3, deadline = ?4,
    due_at = ?4{slot_on_take}
FROM carray(?5) AS given WHERE seq = given.value;

-- name: lease
SELECT {lease} FROM {table} WHERE {id} = ? AND state = 'taken';

-- name: leases
SELECT {lease} FROM {table} WHERE {id} IN (SELECT value FROM json_each(?)) AND state = 'taken';

-- name: slots
SELECT 1 FROM {table} WHERE lane = ? AND place IS NOT NULL LIMIT 1;

-- name: standing
SELECT seq, place, {order} FROM {table} WHERE lane = ? AND place IS NOT NULL AND state = 'ready' LIMIT 1;

-- name: taken_slot
-- One row if the lane has more taken tasks than the second parameter says.
SELECT 1 FROM {table} WHERE lane = ? AND place IS NOT NULL AND state = 'taken' LIMIT 1 OFFSET ?;

-- name: first_waiting
SELECT seq, state, {order} FROM {table} INDEXED BY {waiting_index} WHERE lane = ? AND {waiting} ORDER BY {order} LIMIT 1;

-- name: due
SELECT {columns} FROM {table} WHERE due_at <= ?
ORDER BY due_at, CASE state WHEN 'taken' THEN 0 WHEN 'done' THEN 4 WHEN 'delayed' THEN 3 ELSE 2 END, seq LIMIT ?;

-- name: first_due
SELECT min(due_at) FROM {table} WHERE due_at IS NOT NULL;

-- name: buried
SELECT {columns} FROM {table} WHERE state = 'buried' ORDER BY {order} LIMIT ?;

-- name: exhausted
SELECT {columns} FROM {table}
WHERE (state = 'buried' AND reason IN ('no_attempts', 'lost')) OR (state = 'done' AND reason = 'expired') ORDER BY {order};

-- name: taken
SELECT {columns} FROM {table} WHERE state = 'taken';

-- name: taken_by
SELECT {columns} FROM {table} WHERE state = 'taken' AND session = ?;

-- name: seq_of
SELECT seq FROM {table} WHERE {id} = ? AND seq > 0;

-- name: page
SELECT {columns} FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: page_of_state
SELECT {columns} FROM {table} WHERE seq > ? AND state = ? ORDER BY seq LIMIT ?;

-- name: extent
SELECT (SELECT min(seq) FROM {table} WHERE seq > 0), (SELECT max(seq) FROM {table} WHERE seq > 0);

-- name: next_lane
-- The first lane after a name that holds ready or taken tasks or has settings.
SELECT min(lane) FROM (
    SELECT min(lane) AS lane FROM {table} WHERE lane > ? AND {waiting}
    UNION ALL SELECT min(lane) FROM {table} WHERE lane > ? AND place IS NOT NULL AND lane IS NOT NULL
    UNION ALL SELECT min(lane) FROM {table} WHERE state = 'taken' AND lane > ?
    UNION ALL SELECT min(lane) FROM penstock_lanes WHERE tube = ? AND lane > ?
);

-- name: count_lane
SELECT
    (SELECT count(*) FROM {table} WHERE lane = ? AND {waiting} AND state = 'ready')
        + (SELECT count(*) FROM {table} WHERE lane = ? AND place IS NOT NULL AND lane IS NOT NULL AND state = 'ready'),
    (SELECT count(*) FROM {table} WHERE state = 'taken' AND lane = ?);

-- name: taken_in_lane
SELECT seq FROM {table} WHERE state = 'taken' AND lane = ?;

-- name: all_lanes
-- By their first READY tasks, which is how they join the line; then those with nothing but taken ones.
SELECT lane FROM (
    SELECT lane, row_number() OVER (ORDER BY state, {order}) AS number FROM {table}
    WHERE lane IS NOT NULL AND state IN ('ready', 'taken')
) GROUP BY lane ORDER BY min(number);
