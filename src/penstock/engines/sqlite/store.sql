-- Statements on the tables that all tubes share.

-- name: has_store
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'penstock_store';

-- name: load_schema
SELECT schema FROM penstock_store;

-- name: save_schema
UPDATE penstock_store SET schema = ?;

-- name: load_store
SELECT epoch, token, registry, clean FROM penstock_store;

-- name: bump_registry
UPDATE penstock_store SET registry = registry + 1;

-- name: save_token
UPDATE penstock_store SET token = ?;

-- name: begin_run
UPDATE penstock_store SET epoch = ?, token = ?, clean = 0;

-- name: end_run
UPDATE penstock_store SET clean = 1;

-- name: load_tubes
SELECT number, name, config FROM penstock_tubes;

-- name: insert_tube
INSERT INTO penstock_tubes (name, config) VALUES (?, ?) RETURNING number;

-- name: update_tube
UPDATE penstock_tubes SET config = ? WHERE number = ?;

-- name: delete_tube
DELETE FROM penstock_tubes WHERE number = ?;

-- name: load_lane
SELECT concurrency, rate, burst, paused, tat, wake_at FROM penstock_lanes WHERE tube = ? AND lane = ?;

-- name: save_lane
INSERT INTO penstock_lanes (tube, lane, concurrency, rate, burst, paused, tat, wake_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tube, lane) DO UPDATE SET concurrency = excluded.concurrency, rate = excluded.rate, burst = excluded.burst,
    paused = excluded.paused, tat = excluded.tat, wake_at = excluded.wake_at;

-- name: delete_lane
DELETE FROM penstock_lanes WHERE tube = ? AND lane = ?;

-- name: delete_lanes
DELETE FROM penstock_lanes WHERE tube = ?;

-- name: configured_lanes
SELECT lane FROM penstock_lanes WHERE tube = ?;

-- name: due_lanes
SELECT wake_at, lane FROM penstock_lanes WHERE tube = ? AND wake_at IS NOT NULL AND wake_at <= ? ORDER BY wake_at, lane;

-- name: first_wake
SELECT min(wake_at) FROM penstock_lanes WHERE tube = ? AND wake_at IS NOT NULL;

-- name: load_sessions
SELECT number, uuid, name, ttl, direct, expires_at, attached FROM penstock_sessions;

-- name: save_session
INSERT INTO penstock_sessions (uuid, name, ttl, direct, expires_at, attached) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (uuid) DO UPDATE SET name = excluded.name, ttl = excluded.ttl, expires_at = excluded.expires_at,
    attached = excluded.attached
RETURNING number;

-- name: delete_session
DELETE FROM penstock_sessions WHERE number = ?;

-- name: insert_event
INSERT INTO penstock_events (at, tube, task_id, event, from_state, to_state, reason, attempt, pri, lane, key, worker,
    error_class, error, ready_at, taken_at, delay, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: forget_events
DELETE FROM penstock_events WHERE seq <= ?;

-- name: events
SELECT * FROM penstock_events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?;

-- name: events_of_tube
SELECT * FROM penstock_events WHERE seq > ? AND seq <= ? AND tube = ? ORDER BY seq LIMIT ?;

-- name: marks
SELECT seq FROM (
    SELECT seq, row_number() OVER (ORDER BY seq) AS n, lead(seq) OVER (ORDER BY seq) AS later FROM (
        SELECT seq FROM penstock_events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?
    )
) WHERE n % ? = 0 OR later IS NULL;

-- name: marks_of_tube
SELECT seq FROM (
    SELECT seq, row_number() OVER (ORDER BY seq) AS n, lead(seq) OVER (ORDER BY seq) AS later FROM (
        SELECT seq FROM penstock_events WHERE seq > ? AND seq <= ? AND tube = ? ORDER BY seq LIMIT ?
    )
) WHERE n % ? = 0 OR later IS NULL;

-- name: last_event
SELECT seq FROM penstock_events WHERE seq > ? AND seq <= ? AND (? IS NULL OR tube = ?) ORDER BY seq DESC LIMIT 1;

-- name: written
SELECT number FROM penstock_notes WHERE ledger = ? AND number BETWEEN ? AND ? ORDER BY number LIMIT 1;

-- name: trimmed
SELECT upto FROM penstock_trims WHERE ledger = ?;

-- name: write_note
INSERT INTO penstock_notes (ledger, number, note) VALUES (?, ?, ?);

-- name: notes
SELECT number, note FROM penstock_notes WHERE ledger = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?;

-- name: last_notes
SELECT number, note FROM penstock_notes WHERE ledger = ? ORDER BY number DESC LIMIT ?;

-- name: save_trim
INSERT INTO penstock_trims (ledger, upto) VALUES (?, ?)
ON CONFLICT (ledger) DO UPDATE SET upto = max(upto, excluded.upto);

-- name: delete_notes
DELETE FROM penstock_notes WHERE ledger = ? AND number <= ?;

-- name: first_ledger
SELECT min(ledger) FROM penstock_notes WHERE ledger >= ?;

-- name: next_ledger
SELECT min(ledger) FROM penstock_notes WHERE ledger > ?;

-- name: pending_edits
SELECT seq, tube, row_id FROM penstock_edits WHERE seq <= ? ORDER BY seq LIMIT 10000;

-- name: last_edit
SELECT max(seq) FROM penstock_edits;

-- name: delete_edits
DELETE FROM penstock_edits WHERE seq <= ?;
