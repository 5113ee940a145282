"""Oncelake: exactly-once ingestion from Kafka into Delta Lake, with proof."""

__version__ = "0.1.0"
