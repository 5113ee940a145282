"""Kafka's log as the broker stores it: record batches, transaction markers, offset gaps. Read-only."""
