"""Verify: compare ledger, commits, rows and Kafka with each other. Writes nothing, and shares only the decoder with the pipeline."""
