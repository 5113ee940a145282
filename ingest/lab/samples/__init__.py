"""Sample events of a shop, sent with duplicates, aborted transactions and poison records; a manifest records everything sent."""
