-- How often each change happened, by @keys.
SELECT @keys, event, from_state, to_state, reason, again, sum(n) AS n
FROM {rows}
GROUP BY @keys, event, from_state, to_state, reason, again
