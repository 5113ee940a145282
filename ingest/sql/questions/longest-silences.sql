-- The longest silences
-- Per partition, the longest times between the records of two successive rows, by Kafka's timestamps: nothing was sent, or nothing that
-- became a row. Only rows ingested since the time given by --since (default: 24 hours ago).
WITH times AS (
  SELECT _source, _partition, _offset, _kafka_timestamp AS until,
         lag(_kafka_timestamp) OVER (PARTITION BY _source, _partition ORDER BY _kafka_timestamp, _epoch, _offset) AS since
  FROM {target}
  WHERE _ingested_at >= {since}
)
SELECT _source, _partition, since, until, until - since AS silence, _offset AS offset_after
FROM times
WHERE since IS NOT NULL
ORDER BY silence DESC, until, _source, _partition, _offset
LIMIT 20
