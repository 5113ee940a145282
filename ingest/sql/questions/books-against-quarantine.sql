-- Does the quarantine hold what the books say?
-- The third of the accountant's three questions. For each batch and partition the number of records, and the sum of their offsets, must be
-- the sum of all postings: what was added, less what was removed. The answer lists where they differ. No row means that they agree.
-- `ingest verify` compares a hash of each row's position and event id too, and knows what a DELETE of somebody else has taken. Rows of a
-- rebuild count as one batch.
WITH lines AS (SELECT DISTINCT * FROM {ledger}),
rebuild AS (SELECT coalesce(max(epoch), 0) AS first, coalesce(max(statement_epoch), 0) AS until FROM lines WHERE why = 'rebuild'),
books AS (
  SELECT epoch, batch, source, `partition`, sum(posted) AS posted, sum(offsets) AS offsets
  FROM (
    SELECT CASE WHEN epoch < until THEN first ELSE epoch END AS epoch, CASE WHEN epoch < until THEN 0 ELSE batch END AS batch,
           source, `partition`, why, coalesce(quarantine_rows, 0) AS posted, quarantine_offsets AS offsets
    FROM lines CROSS JOIN rebuild
    WHERE epoch >= first
  ) p
  GROUP BY epoch, batch, source, `partition`
  HAVING count(CASE WHEN why IN ('batch', 'rebuild', 'replay') THEN 1 END) > 0
),
held AS (
  SELECT epoch, batch, source, `partition`, count(at) AS found, sum(CAST(at AS DECIMAL(38,0))) AS offsets
  FROM (
    SELECT CASE WHEN epoch >= first AND epoch < until THEN first ELSE epoch END AS epoch,
           CASE WHEN epoch >= first AND epoch < until THEN 0 ELSE batch END AS batch,
           source AS source, `partition` AS `partition`, `offset` AS at
    FROM {quarantine} CROSS JOIN rebuild
  ) r
  GROUP BY epoch, batch, source, `partition`
)
SELECT coalesce(b.epoch, h.epoch) AS epoch, coalesce(b.batch, h.batch) AS batch, coalesce(b.source, h.source) AS source,
       coalesce(b.`partition`, h.`partition`) AS `partition`, b.posted, h.found, b.offsets AS offsets_posted, h.offsets AS offsets_found
FROM books b
FULL OUTER JOIN held h ON b.epoch = h.epoch AND b.batch = h.batch AND b.source = h.source AND b.`partition` = h.`partition`
WHERE coalesce(b.posted, 0) <> coalesce(h.found, 0) OR coalesce(b.offsets, 0) <> coalesce(h.offsets, 0)
ORDER BY epoch, batch, source, `partition`
