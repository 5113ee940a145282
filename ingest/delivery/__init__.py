"""Exactly once inside Kafka (`kafka`), and beyond it: outbox, database sink, effects, and the trace of one event through all of them."""
