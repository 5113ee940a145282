-- The biggest gaps in the offsets
-- The 20 ranges in which the most offsets had no record. A few per batch are transaction markers; hundreds are an aborted transaction or
-- compaction. `ingest verify TABLE --against-kafka` explains each gap. Where why is gap, a seek left the range out on purpose.
SELECT why, topic, `partition`, epoch, batch, start_offset, end_offset,
       end_offset - start_offset - records_read AS gap, records_read, committed_at
FROM (SELECT DISTINCT * FROM {ledger}) l
WHERE end_offset - start_offset > records_read
ORDER BY gap DESC, committed_at DESC, source, `partition`, start_offset
LIMIT 20
