"""`ingest demo`: two pipelines read the same events and are killed in the same places. One of them is written by hand."""
