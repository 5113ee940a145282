-- Delay from event to lake, by hour
-- How long after it happened (the contract's event_time) an event was in the table: the delay that half of the hour's rows
-- stayed within, nine in ten, 99 in 100, and the longest. The hour is the one in which the rows were ingested; only rows since
-- the time given by --since (24 hours ago without it). Rows without an event time are left out.
WITH delays AS (
  SELECT date_trunc('hour', _ingested_at) AS hour, _ingested_at - {event_time} AS delay
  FROM {target}
  WHERE _ingested_at >= {since} AND {event_time} IS NOT NULL
),
ranked AS (
  SELECT hour, delay, count(*) OVER (PARTITION BY hour) AS row_count,
         row_number() OVER (PARTITION BY hour ORDER BY delay ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS place
  FROM delays
)
SELECT hour, row_count,
       min(CASE WHEN place * 2 >= row_count THEN delay END) AS half_within,
       min(CASE WHEN place * 10 >= row_count * 9 THEN delay END) AS nine_in_ten_within,
       min(CASE WHEN place * 100 >= row_count * 99 THEN delay END) AS ninety_nine_in_100_within,
       max(delay) AS longest
FROM ranked
GROUP BY hour, row_count
ORDER BY hour
