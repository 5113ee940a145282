"""One micro-batch: decode, deduplicate, find conflicts, commit. `ingest.recovery` decides where a run's first batch starts."""
