-- Count failures by hour and fingerprint: the first line of the error without its class, which is a column of its own,
-- and without what differs from one time to the next. \x22 and \x27 are quotes.
WITH failed AS (
    SELECT unix_micros(at) AS at, seq, tube, lane, error_class, to_state,
        coalesce(error, CASE event WHEN 'ttr' THEN 'the lease ran out (ttr)' ELSE 'no error was given' END) AS error
    FROM {events} WHERE event IN ('fail', 'ttr') OR event = 'bury' AND error IS NOT NULL
), named AS (
    SELECT *, left(regexp_replace(substring_index(error, '\n', 1), r'^[^\W\d][\w.]*: ', ''), 600) AS text FROM failed
), quoted AS (
    SELECT *, regexp_replace(
        regexp_replace(text, r'https?://[^\s\x22\x27<>)]+', '<url>'),
        r'\x27[^\x27]*\x27|\x22[^\x22]*\x22|`[^`]*`', '<value>'
    ) AS outline FROM named
), numbered AS (
    SELECT *, left(regexp_replace(
        regexp_replace(
            outline, r'\b0[xX][0-9a-fA-F]+\b|\b[0-9a-fA-F]{{8}}(-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}\b|\b(?=[a-fA-F]*[0-9])[0-9a-fA-F]{{8,}}\b', '#'
        ),
        '[0-9]+([.,:][0-9]+)*', '#'
    ), 300) AS fingerprint FROM quoted
)
SELECT at - pmod(at, 3600000000L) AS slot, tube, lane, error_class, fingerprint, count(*) AS n,
    count_if(to_state = 'buried') AS buried, min(struct(seq, error)) AS example, min(at) AS first, max(at) AS last
FROM numbered
GROUP BY 1, tube, lane, error_class, fingerprint
