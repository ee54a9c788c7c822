-- Jain's index of the acks of lanes: 1 is even.
SELECT tube, count(*) AS lanes, sum(acks) AS acks,
    CAST(sum(acks) AS double) * sum(acks) / nullif(count(*) * sum(CAST(acks AS double) * acks), 0D) AS jain
FROM {lanes}
GROUP BY tube
