"""Sample events of a shop, sent with duplicates, aborted transactions and poison records, and a manifest of what was sent."""
