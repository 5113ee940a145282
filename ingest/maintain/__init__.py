"""Maintenance of a table's Delta tables: compaction, log checkpoints, VACUUM and the quarantine's retention; never a change of a row."""
