"""The database sink: business row, event id and next offset of a record are committed in one database transaction."""
