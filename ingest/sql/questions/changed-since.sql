-- What changed since yesterday
-- The statements committed since the time given by --since (default: 24 hours ago), by why: what each one read, added and, with a minus,
-- removed, and the version that it created. `ingest sql "..." --at VERSION` shows the table at any of these versions. first and seek mark
-- the offsets where an epoch began to read, gap a range that a seek left out on purpose, write-off what was missing at a seek.
SELECT committed_at, why, statement_epoch, statement_batch, of_table,
       max(version) AS version,
       sum(records_read) AS records_read,
       sum(target_rows) AS target_rows,
       sum(present) + sum(duplicate) AS duplicates,
       sum(quarantine_rows) AS quarantine_rows
FROM (SELECT DISTINCT * FROM {ledger}) l
WHERE committed_at >= {since}
GROUP BY committed_at, why, statement_epoch, statement_batch, of_table
ORDER BY committed_at, statement_epoch, statement_batch, why
