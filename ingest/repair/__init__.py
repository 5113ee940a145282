"""What changes a table outside its batches: quarantine replay, rebuild and swap, retention, erasure, compaction, VACUUM.

Batches put records into quarantine. A replay or a drop changes their state and removes none, so every balance still holds. A rebuild fills
a shadow: an ordinary table of the engine in a lake of its own, so runs, verify and SQL work on it. Only the swap changes the table itself.
"""
