-- Batches with their offsets and counts
-- The last 100 ledger rows, newest first. Each row is one partition's part of one batch: the offsets from start_offset up to, but
-- not including, end_offset. gap counts the offsets without a record to read: transaction markers, aborted records, records removed by
-- compaction. end_offset - start_offset = records_read + gap. Every start and every `ingest seek` opens a new epoch.
SELECT epoch, batch, `partition`, start_offset, end_offset,
       records_read, inserted, duplicate, quarantined, gap, target_version, committed_at
FROM {ledger}
WHERE kind = 'batch'
ORDER BY committed_at DESC, epoch DESC, batch DESC, `partition`
LIMIT 100
