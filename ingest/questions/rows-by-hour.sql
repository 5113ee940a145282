-- Rows and duplicates by hour
-- How many records each hour's batches read, and what became of them: rows added to the table, events that were there
-- already (sent again), records in quarantine, and records read a second time from another checkpoint (replayed).
-- The hour is that of the batch's commit. read = inserted + duplicate + quarantined + replayed.
SELECT date_trunc('hour', committed_at) AS hour,
       sum(records_read) AS records_read,
       sum(inserted) AS inserted,
       sum(duplicate) AS duplicate,
       sum(quarantined) AS quarantined,
       sum(replayed) AS replayed
FROM {ledger}
WHERE kind = 'batch'
GROUP BY date_trunc('hour', committed_at)
ORDER BY hour
