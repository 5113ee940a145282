-- The newest rows
-- The 20 rows that came last, whole, with where each came from (_topic, _partition, _offset) and when (_kafka_timestamp is when
-- Kafka got it, _ingested_at when the batch that brought it was planned).
SELECT *
FROM {target}
ORDER BY _ingested_at DESC, _topic_id, _partition, _offset DESC
LIMIT 20
