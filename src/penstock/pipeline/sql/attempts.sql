-- Every lease that has ended.
SELECT tube, task_id, first, seq, attempt.lane, attempt.attempt, attempt.worker, attempt.ready_at, attempt.taken_at,
    attempt.ended_at, (unix_micros(attempt.taken_at) - unix_micros(attempt.ready_at)) / 1e6D AS wait,
    (unix_micros(attempt.ended_at) - unix_micros(attempt.taken_at)) / 1e6D AS run,
    attempt.how, attempt.state, attempt.reason, attempt.error_class, attempt.error
FROM {settled} WHERE attempt IS NOT NULL
