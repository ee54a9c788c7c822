-- The same with rows of many steps added up.
SELECT slot, tube, lane, error_class, fingerprint, sum(n) AS n, sum(buried) AS buried, min(example) AS example,
    min(first) AS first, max(last) AS last
FROM {rows}
GROUP BY slot, tube, lane, error_class, fingerprint
