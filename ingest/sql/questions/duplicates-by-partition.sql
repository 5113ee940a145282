-- Duplicates by partition
-- The partitions of the topic with events that the table already contains, and the number of batches with such events. One partition far
-- above the others points to one producer that sends events again.
SELECT topic, `partition`,
       sum(records_read) AS records_read,
       sum(duplicate) AS duplicate,
       count(CASE WHEN duplicate > 0 THEN 1 END) AS batches_with_duplicates,
       max(CASE WHEN duplicate > 0 THEN committed_at END) AS last_seen
FROM {ledger}
WHERE kind = 'batch'
GROUP BY topic, `partition`
ORDER BY duplicate DESC, topic, `partition`
