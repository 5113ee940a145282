-- How far each partition is
-- Per partition: the next offset to read, the number of batches with its records, records and gaps so far, and the time when its last
-- record was committed. A partition whose last record is much older than the others' is idle or stuck; `ingest status` asks the broker
-- for the lag.
WITH ranked AS (
  SELECT topic, source, `partition`, why, end_offset, records_read, end_offset - start_offset - records_read AS gap, committed_at,
         row_number() OVER (PARTITION BY source, `partition` ORDER BY epoch DESC, batch DESC) AS place
  FROM (SELECT DISTINCT * FROM {ledger}) l
  WHERE why IN ('batch', 'rebuild', 'first', 'start', 'seek') AND end_offset IS NOT NULL
)
SELECT max(topic) AS topic, `partition`,
       max(CASE WHEN place = 1 THEN end_offset END) AS next_offset,
       count(CASE WHEN records_read > 0 THEN 1 END) AS batches_with_records,
       sum(records_read) AS records_read,
       sum(gap) AS gap,
       max(CASE WHEN records_read > 0 THEN committed_at END) AS last_record_committed_at
FROM ranked
GROUP BY source, `partition`
ORDER BY source, `partition`
