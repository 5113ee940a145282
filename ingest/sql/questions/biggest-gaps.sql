-- The biggest gaps in the offsets
-- The 20 ranges in which the most offsets had no record. A few per batch are transaction markers; hundreds are an aborted transaction or
-- compaction. `ingest verify TABLE --against-kafka` explains each gap. The kind gap_accepted is a range that a seek skipped on purpose.
SELECT kind, topic, `partition`, epoch, batch, start_offset, end_offset, gap, records_read, committed_at
FROM {ledger}
WHERE gap > 0
ORDER BY gap DESC, committed_at DESC, topic, `partition`, start_offset
LIMIT 20
