-- Delay from event to lake, by hour
-- The delay from an event (the contract's event_time) to its row in the table, per hour in which the rows were ingested: the delay within
-- which half of the rows arrived, nine in ten, 99 in 100, and the longest delay. Only rows ingested since the time given by --since
-- (default: 24 hours ago). Rows without an event time are left out.
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
