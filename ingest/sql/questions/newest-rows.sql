-- The newest rows
-- The 20 newest rows with all columns: the position that each row was read from (_source, _partition, _offset), the time when Kafka received it
-- (_kafka_timestamp), and the batch that inserted it (_epoch, _batch; planned at _ingested_at).
SELECT *
FROM {target}
ORDER BY _epoch DESC, _batch DESC, _source, _partition, _offset DESC
LIMIT 20
