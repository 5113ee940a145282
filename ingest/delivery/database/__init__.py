"""The database of the services around Kafka: how to connect, our own tables, and their migrations. No business tables live here."""
