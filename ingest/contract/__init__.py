"""Contracts: `tables/*.yml` as frozen, validated values; column types, row rules, event ids. Reads no Kafka and no Delta."""
