-- The biggest gaps in the offsets
-- Where most offsets held no record: a few in each batch are the markers of transactions, hundreds are an aborted transaction or
-- compaction. `ingest verify TABLE --against-kafka` says why each one is a gap.
SELECT topic, `partition`, epoch, batch_id, start_offset, end_offset, gap, records_read, committed_at
FROM {ledger}
WHERE gap > 0
ORDER BY gap DESC, committed_at DESC, topic, `partition`, start_offset
LIMIT 20
