-- The same with rows of many steps added up.
SELECT slot, tube, lane, event, from_state, to_state, reason, again, bucket, sum(n) AS n, sum(us) AS us,
    max(longest) AS longest, min(first) AS first, max(last) AS last
FROM {rows}
GROUP BY slot, tube, lane, event, from_state, to_state, reason, again, bucket
