"""What runs on this machine beside Spark: Java itself and an embedded Kafka broker."""
