"""The main job: Kafka → decode → batch → commit → ledger, one StreamingQuery a table."""
