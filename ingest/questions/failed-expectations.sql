-- Failed expectations of the last validation run
-- What the last `ingest check` found wrong, one row an expectation that failed: how many of how many rows were unexpected, event ids of
-- some of them (samples), or why the expectation could not be evaluated (exception). No row means that everything passed.
SELECT run_at, severity, expectation, `column`, unexpected_count, element_count, observed, exception, samples, version_to
FROM {quality}
WHERE run_at = (SELECT max(run_at) FROM {quality}) AND NOT success
ORDER BY severity, expectation, `column`, number
