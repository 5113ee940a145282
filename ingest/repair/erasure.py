"""Erase a person's data from a table: rows, quarantined records, samples of quality checks, pages, and the old versions of all of them.

1. Complete the ledger: once the files are gone, nobody can count a batch that it lacks.
2. Ledger rows of kind `erased` and `retention` count the rows and records by batch. They name no one. Until step 3 they only
   permit a shortage. A count of an earlier erasure that was cut off here, and not repeated, is cancelled.
3. Delete the rows, then the records, each in one commit. It matches positions, because Delta's log keeps a DELETE's condition for weeks,
   and that condition would name the person. Its commit then settles the count.
4. Remove the samples in the quality table, and the Data Docs.
5. VACUUM with no retention: time travel no longer finds what was deleted.

After a crash, the same command does what is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ingest.delta import writer as commits
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import asked
from ingest.delta.log_errors import table_missing
from ingest.delta.stored_rows import QUARANTINE, TARGET, Columns
from ingest.ledger.batch_history import batch_history, version_of
from ingest.ledger.ledger_row import LedgerRow
from ingest.ledger.projection import complete
from ingest.repair.retention import cancelled, metadata, name_of, removed_rows, settle
from ingest.repair.shadow import shadow_exists, shadow_of
from ingest.runtime import crash_points
from ingest.runtime.errors import InvalidInput, Refused
from ingest.runtime.files import files_of
from ingest.runtime.places import Places, pages_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class InKafka:
    """Erased rows and records of one partition that Kafka may still hold: how many, and their last offset."""

    partition: int
    records: int
    last_offset: int


@dataclass(frozen=True)
class Erased:
    """The outcome of an erasure, or of its dry run. `in_kafka` is empty if no erased offset is at or after the topic's earliest one.

    `samples` is whether the quality table's values were removed, `history` the same for old versions, and `pages` for the Data Docs (None:
    there are none here).
    """

    rows: int
    records: int
    in_kafka: tuple[InKafka, ...]
    samples: bool
    history: bool
    pages: bool | None = None


@dataclass(frozen=True)
class Erasure:
    """What to erase: SQL conditions over the columns of the target and of the quarantine (None: no record).

    The quarantine's condition may use `text`, the value as UTF-8. `earliest` is the topic's earliest offset by partition, and `topic_id` is
    the topic's id.
    """

    where: str
    quarantine_where: str | None
    topic_id: str
    earliest: Mapping[int, int]


def look(session: SparkSession, places: Places, erasure: Erasure) -> Erased:
    """What `erase` would remove. Raises InvalidInput CONDITION_INVALID and TABLE_MISSING."""
    with ExitStack() as stack:
        rows, records = _found(session, places, erasure, stack)
        return Erased(rows.count(), records.count() if records is not None else 0, _in_kafka(rows, records, erasure), False, False)


def erase(session: SparkSession, places: Places, erasure: Erasure, *, history: bool) -> Erased:
    """Erase, and with `history` delete all old versions, too. The caller holds the lock.

    Raises InvalidInput CONDITION_INVALID and TABLE_MISSING, and Refused SHADOW_EXISTS.
    """
    _refuse_shadow(session, places)
    files = files_of(places.lake, session)
    versions = [version_of(DeltaLog(files, path)) for path in (places.target, places.quarantine)]
    with ExitStack() as stack:
        rows, records = _found(session, places, erasure, stack)
        in_kafka = _in_kafka(rows, records, erasure)
        at = datetime.now(UTC)
        about = json.dumps({**metadata(places), "retired_at": name_of(at)})
        complete(session, places)
        known = asked(places.lake, session, lambda engine: batch_history(engine, places))
        topics = {row.epoch: (row.topic, row.topic_id) for row in (*known.begins, *known.batches)}
        gone = _remove(rows, "erased", places, about, topics, versions[0], at)
        crash_points.at("erase_target", 0)
        also = _remove(records, "retention", places, about, topics, versions[1], at) if records is not None else 0
        crash_points.at("erase_quarantine", 0)
    samples = _remove_samples(session, places, about)
    pages = _remove_pages(places)
    if history:
        for path in (places.target, places.quarantine, *([places.quality] if samples else [])):
            commits.vacuum(session, path, about, 0.0, short=True)
    return Erased(gone, also, in_kafka, samples, history, pages)


def _found(session: SparkSession, places: Places, erasure: Erasure, stack: ExitStack) -> tuple[DataFrame, DataFrame | None]:
    """The positions (e, b, p, o, topic_id) of the rows and of the records, and the records' state, computed once."""
    from pyspark.sql import functions as F

    from ingest.runtime.kept_frame import kept

    files = files_of(places.lake, session)
    if not DeltaLog(files, places.target).exists():
        raise table_missing(places.name, places.target)
    rows = _selected(session.read.format("delta").load(places.target), erasure.where, "--where", TARGET)
    records = None
    if erasure.quarantine_where is not None and DeltaLog(files, places.quarantine).exists():
        frame = session.read.format("delta").load(places.quarantine).withColumn("text", F.col("value").cast("string"))
        records = stack.enter_context(kept(_selected(frame, erasure.quarantine_where, "--quarantine-where", QUARANTINE)))
    return stack.enter_context(kept(rows)), records


def _selected(frame: DataFrame, where: str, option: str, columns: Columns) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    names = {"e": columns.epoch, "b": columns.batch, "p": columns.partition, "o": columns.offset}
    more = [(F.col(name) if columns is QUARANTINE else F.lit(None).cast("string")).alias(name) for name in ("topic_id", "state")]
    try:
        found = frame.where(F.expr(where)).select(*(F.col(f"`{name}`").alias(to) for to, name in names.items()), *more)
        found.schema  # noqa: B018 (analyses the condition)
    except (AnalysisException, ParseException) as error:
        raise InvalidInput(
            "CONDITION_INVALID",
            f"{option} {where!r}: {str(error).strip().splitlines()[0]}",
            expected="an SQL condition over the table's columns, such as customer_id = 4711.",
            remedy=f"correct {option}; `ingest sql` shows the columns.",
        ) from error
    return found


def _remove(
    found: DataFrame, kind: str, places: Places, about: str, topics: Mapping[int, tuple[str, str]], since: int, at: datetime
) -> int:
    """Store the counts in the ledger, then delete the positions; returns how many they are. `since` is a version that `found` has seen.

    The same statement cancels the counts of earlier statements that were cut off: what they counted is still there, and may be among these.
    """
    session = found.sparkSession
    path, columns = (places.target, TARGET) if kind == "erased" else (places.quarantine, QUARANTINE)
    counts = {row.key: row for row in asked(places.lake, session, lambda engine: cancelled(engine, places, kind, at))}
    counts |= {row.key: row for row in _counted(places, kind, found, topics, at)}
    if not counts:
        return 0
    rows = list(counts.values())
    commits.merge_retired(session, places.ledger, about, [vars(row) for row in rows])
    crash_points.at("erase_counted", 0)
    commits.delete_positions(found, path, columns, about)
    return settle(session, places, about, rows, since, at)


def _counted(places: Places, kind: str, found: DataFrame, topics: Mapping[int, tuple[str, str]], at: datetime) -> list[LedgerRow]:
    """The ledger rows of kind `erased` (rows) or `retention` (records). `topics` has name and id of the topic by epoch."""
    from pyspark.sql import functions as F

    became_rows = F.count_if(F.col("state") == "replayed").alias("replayed")
    counted = (F.count("*").alias("n"), F.min("o").alias("first"), F.max("o").alias("last"), became_rows)
    groups = found.groupBy("e", "b", "p").agg(*counted).collect()
    return removed_rows(kind, places, groups, topics, version_of(DeltaLog(files_of(places.lake, found.sparkSession), places.target)), at)


def _in_kafka(rows: DataFrame, records: DataFrame | None, erasure: Erasure) -> tuple[InKafka, ...]:
    from pyspark.sql import functions as F

    both = rows if records is None else rows.union(records.where(F.col("topic_id") == erasure.topic_id))
    found = F.lit(False)
    for partition, first in erasure.earliest.items():
        found |= (F.col("p") == partition) & (F.col("o") >= first)
    spans = both.where(found).groupBy("p").agg(F.countDistinct("o").alias("n"), F.max("o").alias("last")).orderBy("p").collect()
    return tuple(InKafka(row["p"], row["n"], row["last"]) for row in spans)


def _remove_samples(session: SparkSession, places: Places, about: str) -> bool:
    """Remove all values of rows from the quality table, because they may be the person's."""
    from ingest.run import table_lock

    if not DeltaLog(files_of(places.lake, session), places.quality).exists():
        return False
    with table_lock.alone(session, places.lake, f"{places.root}/.quality"):
        commits.blank_samples(session, places.quality, about)
    return True


def _remove_pages(places: Places) -> bool | None:
    """Remove the Data Docs, which may show values. The next check writes new pages. Returns None if there are none, False if some stay."""
    import shutil

    folder = pages_folder(places)
    if not folder.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _refuse_shadow(session: SparkSession, places: Places) -> None:
    if shadow_exists(session, places):
        raise Refused(
            "SHADOW_EXISTS",
            f"{shadow_of(places).root} has copies of the rows, from a rebuild of {places.name}. A later --swap would bring them back.",
            expected="no rebuild that is unfinished.",
            remedy=f"`ingest rebuild {places.name} --discard` removes the shadow, or --swap finishes the rebuild.",
        )
