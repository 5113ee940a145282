-- Batches with their offsets and counts
-- The last 100 ledger rows, newest first: a row is one partition's part of one batch. It holds the offsets from start_offset up to,
-- but without, end_offset. gap counts offsets that hold no record for us: transaction markers, aborted records, what
-- compaction took. end_offset - start_offset = records_read + gap. epoch counts the checkpoints: each `ingest rebase` begins the next.
SELECT epoch, batch_id, `partition`, start_offset, end_offset,
       records_read, inserted, duplicate, quarantined, replayed, gap, target_version, committed_at
FROM {ledger}
WHERE kind = 'batch'
ORDER BY committed_at DESC, epoch DESC, batch_id DESC, `partition`
LIMIT 100
