"""Measures the guarantees and the cost of each delivery mode: all modes get the same seeded faults and load, on an embedded broker."""
