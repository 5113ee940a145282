-- Rows and duplicates by hour
-- How many records each hour's batches read, and their outcomes: rows added to the table, duplicates (their event id was already there, or
-- they were read a second time), and records that went to quarantine. The hour is that of the batch's commit.
-- records_read = inserted + duplicates + quarantined.
SELECT date_trunc('hour', committed_at) AS hour,
       sum(records_read) AS records_read,
       sum(target_rows) AS inserted,
       sum(coalesce(present, 0) + duplicate) AS duplicates,
       sum(quarantine_rows) AS quarantined
FROM (SELECT DISTINCT * FROM {ledger}) l
WHERE why = 'batch'
GROUP BY date_trunc('hour', committed_at)
ORDER BY hour
