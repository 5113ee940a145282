-- Do the books close?
-- The first of three questions with which an accountant checks a table. Each record that a batch read became a row, was there already
-- (present), is a later copy in the batch (duplicate) or went to quarantine. The answer lists the batches and partitions where these do
-- not add up. No row means that the books close.
SELECT epoch, batch, source, `partition`,
       sum(records_read) AS records_read,
       sum(target_rows) AS inserted,
       sum(present) AS present,
       sum(duplicate) AS duplicate,
       sum(quarantine_rows) AS quarantined
FROM (SELECT DISTINCT * FROM {ledger}) l
WHERE why IN ('batch', 'rebuild', 'replay')
GROUP BY why, epoch, batch, source, `partition`
HAVING sum(records_read) <> sum(coalesce(target_rows, 0) + coalesce(present, 0) + duplicate + quarantine_rows)
ORDER BY epoch, batch, source, `partition`
