-- Count events by slots of @width microseconds. A take has waited and the end of a lease has run for so long.
SELECT slot, tube, lane, event, from_state, to_state, reason, again,
    CAST(CASE WHEN us < 1 THEN -1 ELSE ceil(ln(us) / ln(@growthD)) END AS int) AS bucket,
    count(*) AS n, sum(us) AS us, max(us) AS longest, min(at) AS first, max(at) AS last
FROM (
    SELECT unix_micros(at) - pmod(unix_micros(at), @widthL) AS slot, tube, @lane AS lane, event, from_state, to_state,
        reason, attempt > 1 AS again, unix_micros(at) AS at, CASE
            WHEN event = 'take' THEN unix_micros(at) - unix_micros(ready_at)
            WHEN from_state = 'taken' AND to_state <> 'taken' THEN unix_micros(at) - unix_micros(taken_at)
        END AS us
    FROM {events}
)
GROUP BY slot, tube, lane, event, from_state, to_state, reason, again, bucket
