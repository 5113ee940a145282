"""`ingest demo`: two pipelines, the same kills, the same events; one is written by hand."""
