"""Decode Kafka records into rows, or into the reason why a record is quarantined. Writes nothing."""
