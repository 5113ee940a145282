-- The newest rows
-- The 20 rows that came last, whole, with where each came from (_partition, _offset), when Kafka got it (_kafka_timestamp), and the
-- batch that inserted it (_epoch, _batch; planned at _ingested_at).
SELECT *
FROM {target}
ORDER BY _epoch DESC, _batch DESC, _partition, _offset DESC
LIMIT 20
