"""Kafka: options, errors, connections, topics and offsets. `log/` reads record batches."""
