-- What a person watches. The cost grows with what is taken, never with what waits.

-- name: holdings
SELECT session, lane, count(*), min(taken_at) FROM {table} INDEXED BY {taken_index} WHERE state = 'taken'
GROUP BY session, lane;

-- name: taken
SELECT count(*) FROM {table} INDEXED BY {taken_index} WHERE state = 'taken' AND lane = ?;

-- name: ready
-- Those that stand behind the first one of their lane, up to a number, and that one.
SELECT (
    SELECT count(*) FROM (SELECT state FROM {table} INDEXED BY {waiting_index} WHERE lane = ?1 AND {waiting} LIMIT ?2)
    WHERE state = 'ready'
) + (
    SELECT count(*) FROM {table} INDEXED BY {slot_index}
    WHERE lane = ?1 AND state = 'ready' AND place IS NOT NULL AND lane IS NOT NULL
);
