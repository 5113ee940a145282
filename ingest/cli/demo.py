"""`ingest demo`: the main job with kills, beside the pipeline that people write by hand."""
