-- Failed expectations
-- The expectations that failed in the last `ingest check`, and in every check since the time given by --since (default: 24 hours ago),
-- newest first. One row per failed expectation: how many of how many rows were unexpected, event ids of some of them (samples), or why it
-- could not be evaluated (exception). No row means that everything passed. A check of new rows reports a bad row only once, so read more
-- than the last check. A table cuts long samples; `--format csv` shows them whole.
SELECT run_at, severity, expectation, `column`, unexpected_count, element_count, observed, exception, samples, version_to
FROM {quality}
WHERE NOT success AND (run_at >= {since} OR run_at = (SELECT max(run_at) FROM {quality}))
ORDER BY run_at DESC, severity, expectation, `column`, number
