"""Erase a person's data from a table: rows, quarantined records, samples of quality checks, pages, and the old versions of all of them.

1. Complete the ledger: once the files are gone, nobody can count a batch that it lacks.
2. Delete the rows, then the records, each in one commit, which posts how many of each batch they were and names no one. It matches
   positions, because Delta's log keeps a DELETE's condition for weeks, and that condition would name the person.
3. Remove the samples in the quality table, the Data Docs, and the hashes of the event ids beside the checkpoints.
4. VACUUM with no retention: time travel no longer finds what was deleted.

After a crash, the same command does what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ingest.delta.delta_log import DeltaLog
from ingest.delta.id_index import IdIndex
from ingest.delta.live_table import LiveTable
from ingest.delta.log_errors import table_missing
from ingest.delta.stored_rows import QUARANTINE, TARGET
from ingest.delta.table_writer import TableWriter
from ingest.ledger.projection import complete
from ingest.recovery.numbering import Numbered
from ingest.repair.erasure_condition import positions
from ingest.repair.retention import POSITIONS, about, remove
from ingest.repair.shadow import shadow_exists, shadow_of
from ingest.runtime import crash_points
from ingest.runtime.errors import IngestError, Refused
from ingest.runtime.files import LocalFiles, files_of, is_local
from ingest.runtime.places import Places, pages_folder


@dataclass(frozen=True)
class InKafka:
    """Erased rows and records of one partition that Kafka may still hold: how many, and their last offset."""

    topic: str
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

    The quarantine's condition may use `text`, the value as UTF-8. `topics` are what Kafka has now; None if that is not known.
    """

    where: str
    quarantine_where: str | None
    topics: Numbered | None


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
    rows, records = _found(writer, places, erasure)
    in_kafka = _in_kafka(rows, records, erasure)
    complete(writer, places, alone=True)
    gone = remove(writer, places, rows, places.target, TARGET, "erasure")
    crash_points.at("erase_target", 0)
    also = remove(writer, places, records, places.quarantine, QUARANTINE, "erasure") if erasure.quarantine_where is not None else 0
    crash_points.at("erase_quarantine", 0)
    samples = _remove_samples(writer, places)
    pages = _remove_pages(places)
    _remove_hashes(places)
    if history:
        for path in (places.target, places.quarantine, *([places.quality] if samples else [])):
            writer.vacuum(path, about(places))
    return Erased(gone, also, in_kafka, samples, history, pages)


def _found(writer: TableWriter, places: Places, erasure: Erasure) -> tuple[pa.Table, pa.Table]:
    """The rows and the records (POSITIONS)."""
    files = files_of(places.lake, writer.session)
    if not DeltaLog(files, places.target).exists():
        raise table_missing(places.name, places.target)
    rows, records = positions(writer, places.target, TARGET, erasure.where, "--where"), POSITIONS.empty_table()
    if erasure.quarantine_where is not None and DeltaLog(files, places.quarantine).exists():
        records = positions(writer, places.quarantine, QUARANTINE, erasure.quarantine_where, "--quarantine-where")
    return rows, records


def _in_kafka(rows: pa.Table, records: pa.Table, erasure: Erasure) -> tuple[InKafka, ...]:
    if (topics := erasure.topics) is None:
        return ()
    both, found = pa.concat_tables([rows, records]), []
    for (source, partition), first in topics.firsts.items():
        offsets = both.filter((pc.field("s") == source) & (pc.field("p") == partition) & (pc.field("o") >= first))["o"]
        if len(offsets):
            topic = topics.sources[source].name
            found.append(InKafka(topic, partition, pc.count_distinct(offsets).as_py(), pc.max(offsets).as_py()))
    return tuple(found)


def _remove_hashes(places: Places) -> None:
    """Remove the hashes of event ids of files that are gone. A table that Delta in Spark writes needs no index: all of it goes."""
    if (index := IdIndex.of(places)) is None:
        return
    target = LiveTable(LocalFiles(), places.target)
    try:
        if is_local(places.lake):
            target.load()
    except IngestError:
        pass
    if target.state is None:
        index.remove()
    else:
        index.tidy(target, thoroughly=True)


def _remove_samples(writer: TableWriter, places: Places) -> bool:
    """Remove all values of rows from the quality table, because they may be the person's."""
    from ingest.run import table_lock

    if not DeltaLog(files_of(places.lake, writer.session), places.quality).exists():
        return False
    with table_lock.alone(writer.session, places.lake, f"{places.root}/.quality"):
        writer.blank_samples(places.quality, about(places))
    return True


def _remove_pages(places: Places) -> bool | None:
    """Remove the Data Docs, which may show values. The next check writes new pages. Returns None if there are none, False if some stay."""
    import shutil

    folder = pages_folder(places)
    if not folder.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
