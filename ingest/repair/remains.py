"""What an erasure leaves: the places that it does not touch, for the person who has to look there. Nothing is searched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.delta.delta_log import DeltaLog
from ingest.delta.table_definitions import NO_VECTORS
from ingest.runtime.files import files_of
from ingest.runtime.places import Places, log_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = "docs/how-to/erase-personal-data.md"
(VECTORS,) = NO_VECTORS


@dataclass(frozen=True)
class Left:
    """A place that may still have the person's data: what may be in it, and until when or how to remove it."""

    place: str
    what: str


def left(session: SparkSession | None, places: Places, topic: str) -> list[Left]:
    """The places that an erasure of this table does not touch, as far as they exist here."""
    return [
        Left("Kafka", f"the records of {topic}, of topics that were made from it, and of dead-letter topics, until Kafka deletes them"),
        *_vectors(session, places),
        Left(
            "the tables' logs",
            "the least and greatest event id of files and batches, and the values of columns that a file is found by, until Delta deletes "
            "the log's file (30 days, or delta.logRetentionDuration)",
        ),
        Left("the database", f"outbox, dead letters, ids of sinks, effects, and the tables that a sink fills: {PAGE} has the SQL"),
        Left(
            str(log_folder(places.lake)),
            "the message of an error in Spark's output may quote a value; deleted after 30 days, or now by you",
        ),
        Left("other checkpoints", "hashes of event ids in `ids/` there, or on another host that ran this table: delete the folder"),
        Left(
            "copies",
            "backups, exported quarantine files, reports, results of `ingest audit --out`, files of SeenIds, tables made from this one",
        ),
    ]


def _vectors(session: SparkSession | None, places: Places) -> Iterator[Left]:
    for path in (places.target, places.quarantine, places.quality):
        state = DeltaLog(files_of(places.lake, session), path).state()
        if state is not None and state.properties.get(VECTORS) == "true":
            what = f"{VECTORS} is on, so erased rows stay in its files until REORG TABLE ... APPLY (PURGE) and a VACUUM after it"
            yield Left(path, what)
