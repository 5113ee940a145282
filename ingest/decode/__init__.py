"""From Kafka records to rows, or to the reason why a record is quarantined. Writes nothing."""
