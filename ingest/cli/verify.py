"""`ingest verify`: the proof."""
