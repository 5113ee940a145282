"""The quarantine as a person handles it: select, show, export, replay and drop its records.

Batches put records there in `batch/`. Nothing here removes a record: replay and drop change its state, so every balance still holds.
"""
