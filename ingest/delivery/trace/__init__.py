"""The way of one event id through outbox, Kafka, database, API and lake. It reads, and writes nothing."""
