"""How many rows the target should hold: what the expectation on the row count is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.delta_sql import engine_for
from ingest.places import Places
from ingest.prove.books import books
from ingest.prove.count import account

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ledger_rows(session: SparkSession | None, places: Places, version: int) -> int:
    """Rows that batches up to `version` of the target put there and that have to be there, as `ingest verify` counts.

    What is missing without a DELETE counts, and what is too much does not. A lake on the machine's own disk needs no session.

    Raises Refused LOG_TORN, and Unreadable.
    """
    engine = engine_for(places.target, session)
    return account(engine, places, books(engine, places, version)).expected_rows
