-- What changed since yesterday
-- The batches committed since the time given by --since (24 hours ago without it): what each read and added, and the version of
-- the table that it made. `ingest sql "..." --at VERSION` shows the table as it was at any of these versions. A kind other than
-- `batch` is a repair: a rebase, an accepted gap.
SELECT committed_at, kind, epoch, batch_id,
       max(target_version) AS target_version,
       sum(records_read) AS records_read,
       sum(inserted) AS inserted,
       sum(duplicate) AS duplicate,
       sum(quarantined) AS quarantined
FROM {ledger}
WHERE committed_at >= {since}
GROUP BY committed_at, kind, epoch, batch_id
ORDER BY committed_at, kind, epoch, batch_id
