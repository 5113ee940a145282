"""Verify against Kafka: read the ranges of all batches again and say where each record is and why each gap is (I4).

A record that is in neither target nor quarantine is right only if it is a duplicate: it is decoded once more, and its event
id has to be in the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract import Contract
from ingest.files import files_of, is_local
from ingest.kafka_options import KafkaOptions
from ingest.places import Places
from ingest.prove.balance import Finding
from ingest.prove.count import POSITION, SHOWN_MAX, deletes, taken
from ingest.prove.intervals import Offsets
from ingest.prove.kafka_fetch import TopicReader
from ingest.prove.kafka_log import records_at, scan
from ingest.prove.placement import Placement, place
from ingest.stream.columns import event_id_columns
from ingest.stream.decode import HEADERS, Decoder, Source
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_row import LedgerRow
from ingest.stream.topic import Topic

# Duplicates are looked up so many at a time.
CHUNK = 100_000
RECORD = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("headers", HEADERS),
    ]
)


@dataclass(frozen=True)
class Reread:
    """What Kafka says of the ledger's ranges: records by where they are, gaps by why, offsets that it no longer holds."""

    records: int
    in_target: int
    in_quarantine: int
    removed: int
    duplicate: int
    gaps: Mapping[str, int]
    unverifiable: int
    findings: tuple[Finding, ...]


def against_kafka(
    session: SparkSession, contract: Contract, places: Places, kafka: KafkaOptions, topic: Topic, rows: Sequence[LedgerRow]
) -> Reread:
    """Compare with the topic, read with a plain consumer at the level of record batches.

    `rows` are the ledger rows of kind batch in force. Those of another topic id are unverifiable. Raises what TopicReader and
    scan raise (Unfit).
    """
    here = [row for row in rows if row.topic_id == topic.id and row.end_offset > row.start_offset]
    foreign = sum(row.end_offset - row.start_offset for row in rows if row.topic_id != topic.id)
    target = session.read.format("delta").load(places.target)
    target_positions = _positions(session, places.target, topic.id, POSITION)
    quarantine_positions = _positions(session, places.quarantine, topic.id, tuple(name[1:] for name in POSITION))
    gone = _removed_positions(session, DeltaLog(files_of(places.lake, session), places.target), topic.id)
    placements: list[Placement] = []
    findings: list[Finding] = []
    with TopicReader(kafka, topic.name) as reader:
        for partition in sorted({row.partition for row in here}):
            of_partition = [row for row in here if row.partition == partition]
            start, end = min(row.start_offset for row in of_partition), max(row.end_offset for row in of_partition)
            placement = place(
                scan(reader, partition, start, end),
                of_partition,
                target_positions.get(partition, _none()),
                quarantine_positions.get(partition, _none()),
                isolation="read_committed" if contract.source.isolation_level == "read_committed" else "read_uncommitted",
                removed=gone.get(partition, _none()),
            )
            placements.append(placement)
            findings += placement.findings
            findings += _lost(session, contract, topic, reader, placement, target)
    gaps: dict[str, int] = {}
    for placement in placements:
        for kind, offsets in placement.gaps:
            name = kind.name.lower().replace("_", " ")
            gaps[name] = gaps.get(name, 0) + len(offsets)
    return Reread(
        sum(each.records for each in placements),
        sum(len(each.in_target) + len(each.in_both) for each in placements),
        sum(len(each.in_quarantine) for each in placements),
        sum(len(each.removed) for each in placements),
        sum(len(each.elsewhere) for each in placements),
        gaps,
        foreign + sum(len(each.unverifiable) for each in placements),
        tuple(findings),
    )


def _none() -> Offsets:
    return np.empty(0, np.int64)


def _positions(session: SparkSession, table: str, topic_id: str, columns: tuple[str, ...]) -> dict[int, Offsets]:
    """The offsets that a table holds of this topic, by partition."""
    topic, partition, offset = columns
    if is_local(table):
        from deltalake import DeltaTable, QueryBuilder

        escaped = topic_id.replace("'", "''")
        sql = f'SELECT "{partition}" AS p, "{offset}" AS o FROM t WHERE "{topic}" = \'{escaped}\''
        found = QueryBuilder().register("t", DeltaTable(table)).execute(sql).read_all()
        p, o = (np.concatenate([np.asarray(c) for c in found.column(n).chunks] or [_none()]) for n in ("p", "o"))
    else:
        frame: Any = session.read.format("delta").load(table).where(F.col(topic) == topic_id).select(partition, offset).toPandas()
        p, o = frame[partition].to_numpy(), frame[offset].to_numpy()
    return {int(each): o[p == each].astype(np.int64) for each in np.unique(p)}


def _removed_positions(session: SparkSession, log: DeltaLog, topic_id: str) -> dict[int, Offsets]:
    """Positions of rows that DELETE commits took, as far as the versions before and after can still be read."""
    found: dict[int, list[int]] = {}
    for commit in deletes(log):
        try:
            gone = taken(session, log.table, commit).where(F.col("_topic_id") == topic_id).collect()
        except PySparkException:
            continue  # VACUUM has taken the files
        for row in gone:
            found.setdefault(row["_partition"], []).append(row["_offset"])
    return {partition: np.array(offsets, np.int64) for partition, offsets in found.items()}


def _lost(
    session: SparkSession, contract: Contract, topic: Topic, reader: TopicReader, placement: Placement, target: DataFrame
) -> Iterator[Finding]:
    """Records that stand nowhere and whose event id the target does not hold."""
    ids = event_id_columns(contract)
    known = target.select(*(F.col(f"`{name}`") for name in ids))
    offsets = placement.elsewhere.offsets()
    if not len(offsets):  # a decoder takes a second to put together
        return
    decoder, shown = Decoder(contract), 0
    for begin in range(0, len(offsets), CHUNK):
        found = records_at(reader, placement.partition, offsets[begin : begin + CHUNK])
        rows = [
            (r.key, r.value, topic.name, placement.partition, r.offset, datetime.fromtimestamp(r.timestamp_ms / 1000, UTC), list(r.headers))
            for r in found
        ]
        events = decoder.decode(session.createDataFrame(rows, RECORD), Source(topic.name, topic.id, datetime.now(UTC)))
        lost = events.join(known, list(ids), "leftanti").orderBy("_offset").limit(SHOWN_MAX - shown).collect()
        for row in lost:
            what = "is in neither target nor quarantine, and its event id is not in the target"
            why = f" ({row['__reason']}: it belongs into quarantine)" if row["__reason"] else ""
            yield Finding("RECORD_LOST", what + why, None, placement.partition, row["_offset"], row["_offset"] + 1)
        shown += len(lost)
        if shown >= SHOWN_MAX:
            return
