-- Failures that are alike, over all time and lanes.
SELECT tube, error_class, fingerprint, min(example).error AS example, sum(n) AS n, sum(buried) AS buried,
    count(DISTINCT coalesce(lane, '')) AS lanes, min(first) AS first, max(last) AS last
FROM {rows}
GROUP BY tube, error_class, fingerprint
