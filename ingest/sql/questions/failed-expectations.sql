-- Failed expectations
-- What the last `ingest check` found wrong, and every check since the time given by --since (24 hours ago without it), newest first; one
-- row an expectation that failed: how many of how many rows were unexpected, event ids of some of them (samples), or why it could not be
-- evaluated (exception). No row means that everything passed. A check of new rows finds a bad row once, so look at more than the last.
-- A table cuts long samples; `--format csv` has them whole.
SELECT run_at, severity, expectation, `column`, unexpected_count, element_count, observed, exception, samples, version_to
FROM {quality}
WHERE NOT success AND (run_at >= {since} OR run_at = (SELECT max(run_at) FROM {quality}))
ORDER BY run_at DESC, severity, expectation, `column`, number
