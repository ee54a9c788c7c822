-- Every life of a task.
SELECT tube, task_id, first, life.last, life.lane, life.key, life.pri, life.began_at, life.taken_at,
    CASE WHEN life.state = 'done' THEN life.at END AS ended_at, life.state, life.reason, life.takes, life.fails,
    life.lost, life.waited / 1e6D AS waited, life.ran / 1e6D AS ran, life.error_class, life.error,
    life.data_seq
FROM {rows} WHERE life IS NOT NULL
