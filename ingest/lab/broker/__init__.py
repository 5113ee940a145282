"""A Kafka broker in its own process, for demos and tests."""
