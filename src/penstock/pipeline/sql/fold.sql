-- Fold the lives that were open and new events, in the order of seq: what has ended, and what goes on.
--
-- A row of each event knows the life it belongs to, and what that life has come to by then. A new life of an id whose
-- last one has no end tells that the end was not seen: the tube was emptied, or had no history for a while. Spark sorts
-- by numbers several times faster than by texts, hence the hash.
WITH rows AS (
    SELECT tube, task_id, seq, at, event, attempt, worker, taken_at, error_class, error,
        from_state IS NULL OR from_state = 'done' AS begins,
        from_state = 'taken' AND to_state <> 'taken' AS ended,
        CASE WHEN from_state IS NULL OR from_state = 'done' THEN seq END AS first_seen,
        lane, key, pri, at AS began_at, CASE WHEN event = 'take' THEN at END AS first_taken_at, to_state AS state, reason,
        CASE WHEN event = 'take' THEN 1L ELSE 0L END AS takes,
        CASE WHEN event = 'fail' THEN 1L ELSE 0L END AS fails,
        CASE WHEN event = 'ttr' OR event = 'release' AND reason = 'lost' THEN 1L ELSE 0L END AS lost,
        CASE WHEN event = 'take' THEN unix_micros(at) - unix_micros(ready_at) END AS waited,
        CASE WHEN from_state = 'taken' AND to_state <> 'taken'
            THEN unix_micros(at) - unix_micros(taken_at) END AS ran,
        CASE WHEN error IS NOT NULL THEN struct(error_class, error) END AS failure,
        CASE WHEN data IS NOT NULL OR body IS NOT NULL THEN seq END AS data_seq,
        CASE WHEN event = 'take' THEN ready_at END AS was_ready
    FROM {events} WHERE NOT (from_state <=> 'done' AND to_state = 'done')
    UNION ALL
    SELECT tube, task_id, seq, life.at, NULL AS event, NULL AS attempt, NULL AS worker, NULL AS taken_at,
        NULL AS error_class, NULL AS error, false AS begins, false AS ended, first AS first_seen, life.lane, life.key,
        life.pri, life.began_at, life.taken_at AS first_taken_at, life.state, life.reason, life.takes, life.fails,
        life.lost, life.waited, life.ran,
        CASE WHEN life.error IS NOT NULL THEN struct(life.error_class, life.error) END AS failure,
        life.data_seq, life.was_ready
    FROM {open}
),
marked AS (
    SELECT *, coalesce(max(first_seen) OVER so_far, min(seq) OVER so_far) AS first, lead(begins) OVER task AS followed
    FROM (SELECT *, xxhash64(tube, task_id) AS hash FROM rows)
    WINDOW task AS (PARTITION BY hash, tube, task_id ORDER BY seq),
        so_far AS (PARTITION BY hash, tube, task_id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
lived AS (
    SELECT tube, task_id, first, seq, at, event, attempt, worker, taken_at, error_class, error, coalesce(ended, false)
        AS ended, coalesce(followed, true) AS is_last, coalesce(followed, false) AS is_followed, lane, key, pri,
        min(began_at) OVER life AS began_at, min(first_taken_at) OVER life AS first_taken_at, state, reason,
        sum(takes) OVER life AS takes, sum(fails) OVER life AS fails, sum(lost) OVER life AS lost,
        sum(waited) OVER life AS waited, sum(ran) OVER life AS ran, last_value(failure, true) OVER life AS failure,
        max(data_seq) OVER life AS data_seq, last_value(was_ready, true) OVER life AS was_ready
    FROM marked
    WINDOW life AS (
        PARTITION BY hash, tube, task_id, first ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
parted AS (
    SELECT *, is_last AND (state = 'done' OR is_followed) AS is_closed, explode(
        filter(array(
            CASE WHEN ended OR is_last AND (state = 'done' OR is_followed) THEN 'settled' END,
            CASE WHEN is_last AND NOT (state = 'done' OR is_followed) THEN 'open' END
        ), part -> part IS NOT NULL)) AS part
    FROM lived WHERE ended OR is_last
)
SELECT tube, task_id, first, seq, part,
    CASE WHEN ended AND part = 'settled' THEN struct(
        lane, attempt, worker, was_ready AS ready_at, taken_at, at AS ended_at, event AS how, state, reason,
        error_class, error
    ) END AS attempt,
    CASE WHEN is_closed OR part = 'open' THEN struct(
        seq AS last, lane, key, pri, began_at, first_taken_at AS taken_at, at,
        CASE WHEN is_closed THEN 'done' ELSE state END AS state,
        CASE WHEN is_closed AND state <> 'done' THEN 'unseen' ELSE reason END AS reason,
        takes, fails, lost, waited, ran, failure.error_class, failure.error, data_seq, was_ready
    ) END AS life
FROM parted
