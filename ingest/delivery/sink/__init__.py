"""The database sink: business row, event id and next offset of a record are committed in one database transaction."""

from ingest.delivery.sink.database_sink import Counts, Sink
from ingest.delivery.sink.record_id import header, json_field, key

__all__ = ["Counts", "Sink", "header", "json_field", "key"]
