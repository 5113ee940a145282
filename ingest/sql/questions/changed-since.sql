-- What changed since yesterday
-- The batches committed since the time given by --since (default: 24 hours ago): how many records each one read and added, and the
-- version of the table that it created. `ingest sql "..." --at VERSION` shows the table at any of these versions. The kind epoch marks
-- the offsets where a start or a seek began to read; the kind gap_accepted is a range that a seek skipped on purpose.
SELECT committed_at, kind, epoch, batch,
       max(target_version) AS target_version,
       sum(records_read) AS records_read,
       sum(inserted) AS inserted,
       sum(duplicate) AS duplicate,
       sum(quarantined) AS quarantined
FROM {ledger}
WHERE committed_at >= {since}
GROUP BY committed_at, kind, epoch, batch
ORDER BY committed_at, epoch, batch, kind
