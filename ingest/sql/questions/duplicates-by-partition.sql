-- Duplicates by partition
-- The partitions with events that the table already contains, and the number of batches with such events. One partition far
-- above the others points to one producer that sends events again.
WITH batches AS (
  SELECT max(topic) AS topic, epoch, batch, source, `partition`,
         sum(records_read) AS records_read,
         sum(coalesce(present, 0) + duplicate) AS duplicates,
         min(committed_at) AS committed_at
  FROM (SELECT DISTINCT * FROM {ledger}) l
  WHERE why = 'batch'
  GROUP BY epoch, batch, source, `partition`
)
SELECT max(topic) AS topic, `partition`,
       sum(records_read) AS records_read,
       sum(duplicates) AS duplicates,
       count(CASE WHEN duplicates > 0 THEN 1 END) AS batches_with_duplicates,
       max(CASE WHEN duplicates > 0 THEN committed_at END) AS last_seen
FROM batches
GROUP BY source, `partition`
ORDER BY duplicates DESC, source, `partition`
