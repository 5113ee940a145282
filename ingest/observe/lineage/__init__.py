"""OpenLineage events of batches and validation runs, from ledger and quality table. They are sent after the commits, never by a run."""
