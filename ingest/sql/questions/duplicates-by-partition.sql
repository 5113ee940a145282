-- Duplicates by partition
-- Which partitions of the topic bring events that the table holds already, and in how many batches. One partition far above
-- the others points at one producer that sends again.
SELECT topic, `partition`,
       sum(records_read) AS records_read,
       sum(duplicate) AS duplicate,
       count(CASE WHEN duplicate > 0 THEN 1 END) AS batches_with_duplicates,
       max(CASE WHEN duplicate > 0 THEN committed_at END) AS last_seen
FROM {ledger}
WHERE kind = 'batch'
GROUP BY topic, `partition`
ORDER BY duplicate DESC, topic, `partition`
