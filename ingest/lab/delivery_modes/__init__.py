"""What each delivery mode really costs and keeps: the same seeded faults and the same load for all, on an embedded broker."""
