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
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import asked
from ingest.delta.log_errors import table_missing
from ingest.delta.stored_rows import QUARANTINE, TARGET
from ingest.delta.table_writer import TableWriter
from ingest.ledger.batch_history import batch_history, version_of
from ingest.ledger.ledger_row import LedgerRow
from ingest.ledger.projection import complete
from ingest.repair.erasure_condition import FOUND, positions
from ingest.repair.retention import cancelled, metadata, name_of, removed_rows, settle
from ingest.repair.shadow import shadow_exists, shadow_of
from ingest.runtime import crash_points
from ingest.runtime.errors import Refused
from ingest.runtime.files import files_of
from ingest.runtime.places import Places, pages_folder

if TYPE_CHECKING:
    pass


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


def look(writer: TableWriter, places: Places, erasure: Erasure) -> Erased:
    """What `erase` would remove. Raises InvalidInput CONDITION_INVALID and TABLE_MISSING."""
    rows, records = _found(writer, places, erasure)
    return Erased(rows.num_rows, records.num_rows, _in_kafka(rows, records, erasure), False, False)


def erase(writer: TableWriter, places: Places, erasure: Erasure, *, history: bool) -> Erased:
    """Erase, and with `history` delete all old versions, too. The caller holds the lock.

    Raises InvalidInput CONDITION_INVALID and TABLE_MISSING, and Refused SHADOW_EXISTS.
    """
    if shadow_exists(writer.session, places):
        raise Refused(
            "SHADOW_EXISTS",
            f"{shadow_of(places).root} has copies of the rows, from a rebuild of {places.name}. A later --swap would bring them back.",
            expected="no rebuild that is unfinished.",
            remedy=f"`ingest rebuild {places.name} --discard` removes the shadow, or --swap finishes the rebuild.",
        )
    files = files_of(places.lake, writer.session)
    versions = [version_of(DeltaLog(files, path)) for path in (places.target, places.quarantine)]
    rows, records = _found(writer, places, erasure)
    in_kafka = _in_kafka(rows, records, erasure)
    at = datetime.now(UTC)
    about = json.dumps({**metadata(places), "retired_at": name_of(at)})
    complete(writer, places)
    known = asked(places.lake, writer.session, lambda engine: batch_history(engine, places))
    topics = {row.epoch: (row.topic, row.topic_id) for row in (*known.begins, *known.batches)}
    gone = _remove(writer, rows, "erased", places, about, topics, versions[0], at)
    crash_points.at("erase_target", 0)
    searched = erasure.quarantine_where is not None
    also = _remove(writer, records, "retention", places, about, topics, versions[1], at) if searched else 0
    crash_points.at("erase_quarantine", 0)
    samples = _remove_samples(writer, places, about)
    pages = _remove_pages(places)
    if history:
        for path in (places.target, places.quarantine, *([places.quality] if samples else [])):
            writer.vacuum(path, about)
    return Erased(gone, also, in_kafka, samples, history, pages)


def _found(writer: TableWriter, places: Places, erasure: Erasure) -> tuple[pa.Table, pa.Table]:
    """The rows and the records (`erasure_condition.FOUND`)."""
    files = files_of(places.lake, writer.session)
    if not DeltaLog(files, places.target).exists():
        raise table_missing(places.name, places.target)
    rows, records = positions(writer, places.target, TARGET, erasure.where, "--where"), FOUND.empty_table()
    if erasure.quarantine_where is not None and DeltaLog(files, places.quarantine).exists():
        records = positions(writer, places.quarantine, QUARANTINE, erasure.quarantine_where, "--quarantine-where")
    return rows, records


def _remove(
    writer: TableWriter,
    found: pa.Table,
    kind: str,
    places: Places,
    about: str,
    topics: Mapping[int, tuple[str, str]],
    since: int,
    at: datetime,
) -> int:
    """Store the counts in the ledger, then delete the positions; returns how many they are. `since` is a version that `found` has seen.

    The same statement cancels the counts of earlier statements that were cut off: what they counted is still there, and may be among these.
    """
    path, columns = (places.target, TARGET) if kind == "erased" else (places.quarantine, QUARANTINE)
    counts = {row.key: row for row in asked(places.lake, writer.session, lambda engine: cancelled(engine, places, kind, at))}
    counts |= {row.key: row for row in _counted(writer, places, kind, found, topics, at)}
    if not counts:
        return 0
    rows = list(counts.values())
    writer.merge_retired(places, about, [vars(row) for row in rows])
    crash_points.at("erase_counted", 0)
    writer.delete_positions(found, path, columns, about)
    return settle(writer, places, about, rows, since, at)


def _counted(
    writer: TableWriter, places: Places, kind: str, found: pa.Table, topics: Mapping[int, tuple[str, str]], at: datetime
) -> list[LedgerRow]:
    """The ledger rows of kind `erased` (rows) or `retention` (records). `topics` has name and id of the topic by epoch."""
    known = found.append_column("r", pc.fill_null(pc.equal(found["state"], "replayed"), False).cast(pa.int64()))
    grouped = known.group_by(["e", "b", "p"]).aggregate([("o", "count"), ("o", "min"), ("o", "max"), ("r", "sum")])
    groups = grouped.rename_columns({"o_count": "n", "o_min": "first", "o_max": "last", "r_sum": "replayed"}).to_pylist()
    return removed_rows(kind, places, groups, topics, version_of(DeltaLog(files_of(places.lake, writer.session), places.target)), at)


def _in_kafka(rows: pa.Table, records: pa.Table, erasure: Erasure) -> tuple[InKafka, ...]:
    both = pa.concat_tables([rows, records.filter(pc.equal(records["topic_id"], erasure.topic_id))])
    found = []
    for partition, first in sorted(erasure.earliest.items()):
        offsets = both.filter((pc.field("p") == partition) & (pc.field("o") >= first))["o"]
        if len(offsets):
            found.append(InKafka(partition, pc.count_distinct(offsets).as_py(), pc.max(offsets).as_py()))
    return tuple(found)


def _remove_samples(writer: TableWriter, places: Places, about: str) -> bool:
    """Remove all values of rows from the quality table, because they may be the person's."""
    from ingest.run import table_lock

    if not DeltaLog(files_of(places.lake, writer.session), places.quality).exists():
        return False
    with table_lock.alone(writer.session, places.lake, f"{places.root}/.quality"):
        writer.blank_samples(places.quality, about)
    return True


def _remove_pages(places: Places) -> bool | None:
    """Remove the Data Docs, which may show values. The next check writes new pages. Returns None if there are none, False if some stay."""
    import shutil

    folder = pages_folder(places)
    if not folder.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
