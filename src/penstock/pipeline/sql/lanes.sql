-- Lanes, with what makes their share.
SELECT tube, lane, sum(n) AS n, sum(CASE WHEN event = 'ack' THEN n ELSE 0 END) AS acks, min(first) AS first,
    max(last) AS last
FROM {rows}
GROUP BY tube, lane
