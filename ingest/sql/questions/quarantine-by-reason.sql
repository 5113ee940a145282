-- Quarantine by reason, with examples
-- Why records did not become rows, how often, since when, how many are still open, and the positions of the first three of each kind
-- (partition:offset; topic/partition:offset if the records are of several topics). The question quarantined-records shows their contents.
-- docs/reference/contracts.md explains every reason.
WITH ranked AS (
  SELECT reason_code, reason_detail, state, kafka_timestamp,
         concat(CASE WHEN min(topic) OVER () <> max(topic) OVER () THEN concat(topic, '/') ELSE '' END,
                CAST(`partition` AS STRING), ':', CAST(`offset` AS STRING)) AS position_in_topic,
         row_number() OVER (PARTITION BY reason_code, reason_detail ORDER BY source, `partition`, `offset`) AS place
  FROM {quarantine}
)
SELECT reason_code, reason_detail,
       count(*) AS records,
       count(CASE WHEN state = 'open' THEN 1 END) AS still_open,
       min(kafka_timestamp) AS first_seen,
       max(kafka_timestamp) AS last_seen,
       max(CASE WHEN place = 1 THEN position_in_topic END) AS example_1,
       max(CASE WHEN place = 2 THEN position_in_topic END) AS example_2,
       max(CASE WHEN place = 3 THEN position_in_topic END) AS example_3
FROM ranked
GROUP BY reason_code, reason_detail
ORDER BY records DESC, reason_code, reason_detail
