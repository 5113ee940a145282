-- Records in quarantine, with their text
-- The 20 newest records that did not become rows: where each stands in the topic, why, and its value as text, NULL where it is none.
-- A table cuts long texts; `--format csv` has them whole. They are what producers sent, personal data too.
SELECT kafka_timestamp, `partition`, `offset`, reason_code, reason_detail, state,
       CASE WHEN reason_code <> 'not_utf8' THEN TRY_CAST(value AS STRING) END AS text
FROM {quarantine}
ORDER BY kafka_timestamp DESC, topic_id, `partition`, `offset` DESC
LIMIT 20
