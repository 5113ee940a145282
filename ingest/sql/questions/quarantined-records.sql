-- Records in quarantine, with their text
-- The 20 newest records that did not become rows: the topic and the position in it, the reason, and the value as text (NULL if it is not
-- text). A table cuts long texts; `--format csv` shows them whole. The values are as the producers sent them, including personal data.
SELECT kafka_timestamp, topic, `partition`, `offset`, reason_code, reason_detail, state,
       CASE WHEN reason_code <> 'not_utf8' THEN TRY_CAST(value AS STRING) END AS text
FROM {quarantine}
ORDER BY kafka_timestamp DESC, source, `partition`, `offset` DESC
LIMIT 20
