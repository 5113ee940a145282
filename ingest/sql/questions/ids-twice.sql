-- Events that are in the table twice
-- Event ids that more than one row has. `ingest` guarantees that there are none. The query reads every row.
SELECT {event_id}, count(*) AS row_count, min(_ingested_at) AS first_ingested, max(_ingested_at) AS last_ingested
FROM {target}
GROUP BY {event_id}
HAVING count(*) > 1
ORDER BY row_count DESC, {event_id}
LIMIT 100
