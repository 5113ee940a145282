-- Batches with their offsets and counts
-- The last 100 batches by partition, newest first: the offsets from start_offset up to, but not including, end_offset, and what became of
-- the records. present records are in the table or its quarantine already, duplicate ones are later copies in the same batch.
-- gap counts the offsets without a record to read: transaction markers, aborted records, records removed by compaction. If Delta in Spark
-- writes, the statement after a batch says what the batch inserted: until then inserted and present are empty.
SELECT epoch, batch, max(topic) AS topic, `partition`,
       max(start_offset) AS start_offset,
       max(end_offset) AS end_offset,
       sum(records_read) AS records_read,
       sum(target_rows) AS inserted,
       sum(present) AS present,
       sum(duplicate) AS duplicate,
       sum(quarantine_rows) AS quarantined,
       max(end_offset) - max(start_offset) - sum(records_read) AS gap,
       min(version) AS target_version,
       min(committed_at) AS committed_at
FROM (SELECT DISTINCT * FROM {ledger}) l
WHERE why = 'batch'
GROUP BY epoch, batch, source, `partition`
ORDER BY committed_at DESC, epoch DESC, batch DESC, source, `partition`
LIMIT 100
