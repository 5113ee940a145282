"""Kafka: options, errors, topics and offsets. `log/` reads record batches; `delivery/` is the library of producers and consumers."""
