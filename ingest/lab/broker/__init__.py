"""A Kafka broker of its own process, for demos and tests."""
