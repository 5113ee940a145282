"""Contracts: `tables/*.yml` as frozen, validated values, with column types, row rules and event ids. Reads no Kafka and no Delta."""
