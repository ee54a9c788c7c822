-- Percentiles of waits and runs by @keys: the first bucket at which so many have been counted.
WITH summed AS (
    SELECT @keys, event = 'take' AS is_wait, bucket, sum(n) AS n, sum(us) AS us, max(longest) AS longest
    FROM {rows} WHERE bucket IS NOT NULL
    GROUP BY @keys, event = 'take', bucket
), ranked AS (
    SELECT *, sum(n) OVER (PARTITION BY @keys, is_wait ORDER BY bucket) AS upto,
        sum(n) OVER (PARTITION BY @keys, is_wait) AS total
    FROM summed
)
SELECT @keys, is_wait, first(total) AS total, sum(us) AS us, max(longest) AS longest,
    min(CASE WHEN upto >= total * 0.5D THEN bucket END) AS p50,
    min(CASE WHEN upto >= total * 0.9D THEN bucket END) AS p90,
    min(CASE WHEN upto >= total * 0.99D THEN bucket END) AS p99
FROM ranked
GROUP BY @keys, is_wait
