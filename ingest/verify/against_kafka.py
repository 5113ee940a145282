"""Verify against Kafka: read the ranges of all batches again, locate each record, and explain each gap (I4).

A record that is in neither target nor quarantine must be a duplicate (lost_records.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, Unreadable
from ingest.delta.reachable import deletes
from ingest.delta.stored_rows import QUARANTINE, TARGET, Columns, in_quarantine, in_target, positions
from ingest.kafka.intervals import Offsets
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.fetch import TopicReader
from ingest.kafka.log.leader_epochs import taken_back
from ingest.kafka.log.log_reader import scan
from ingest.kafka.offsets import Position
from ingest.kafka.topic import Topic
from ingest.ledger.books import Books
from ingest.runtime.files import files_of
from ingest.runtime.places import Places
from ingest.verify.balance import Finding
from ingest.verify.classification import Classification, classify
from ingest.verify.lost_records import Gone, decoder, lost
from ingest.verify.same_record import Contents, Records, compared_ids, of_other_records, reader_of, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Reread:
    """Kafka's view of the batches' ranges, as counts: records by where they are, gaps by their reason.

    `removed` records are rows that a DELETE took. `duplicate` records are in neither table. `unverifiable` are offsets that Kafka no longer
    has, or that belong to another topic id.
    """

    records: int
    in_target: int
    in_quarantine: int
    removed: int
    duplicate: int
    gaps: Mapping[str, int]
    unverifiable: int
    findings: tuple[Finding, ...]


def against_kafka(
    engine: Engine,
    session: Callable[[], SparkSession],
    contract: Contract,
    places: Places,
    kafka: KafkaOptions,
    topic: Topic,
    books: Books,
) -> Reread:
    """Compare books and tables with the topic, which a plain consumer reads at the level of record batches.

    Batches of another topic id are unverifiable. `session` is called only if Spark has to decode records that are in neither table. Raises
    the InvalidEnvironment errors of TopicReader and `scan`, and Unreadable.
    """
    ranges = [(line, at) for line in books.batches if (at := line.posting.range) is not None and len(at)]
    here = [(line, at) for line, at in ranges if line.topic.id == topic.id]
    foreign = sum(len(at) for line, at in ranges if line.topic.id != topic.id)
    rows_of_topic = in_target(books.topics, topic.id)
    tables = (places.target, TARGET, rows_of_topic), (places.quarantine, QUARANTINE, in_quarantine(topic.id))
    columns_of_time = ("_kafka_timestamp", compared_ids(contract)), ("kafka_timestamp", ())
    stored_rows, stored_records = (
        stored(engine, At(path), columns, time, where, compared)
        for (path, columns, where), (time, compared) in zip(tables, columns_of_time, strict=True)
    )
    logs = [DeltaLog(files_of(places.lake, engine.session), path) for path, _, _ in tables]
    deleted, records_deleted = (list(deletes(log, log.newest())) for log in logs)
    gone = _removed_positions(engine, *tables[0], deleted)
    for partition, taken in _removed_positions(engine, *tables[1], records_deleted).items():
        gone[partition] = np.concatenate((gone.get(partition, _none()), taken))
    classifications: list[Classification] = []
    findings: list[Finding] = []
    ids, decode, read_again = event_id_columns(contract), None, reader_of(contract, topic.id)
    with TopicReader(kafka, topic.name) as reader:
        for partition, (start, end) in taken_back(reader, _read_to(logs[0], places.name, topic.id)).items():
            what = "were read, and the topic's log has lost them: its leader was elected without them"
            findings.append(Finding("LOG_TRUNCATED", what, partition=partition, start_offset=start, end_offset=end))
        for partition in sorted({at.partition for _, at in here}):
            of_partition = [line for line, at in here if at.partition == partition]
            start, end = (pick(e for _, at in here if at.partition == partition for e in (at.start, at.end)) for pick in (min, max))
            target_rows, quarantined = stored_rows.get(partition, Contents.of(())), stored_records.get(partition, Contents.of(()))
            records = Records(read_again, partition)
            classification = classify(
                scan(reader, partition, start, end, records.see),
                of_partition,
                target_rows.offsets,
                quarantined.offsets,
                isolation="read_committed" if contract.source.isolation_level == "read_committed" else "read_uncommitted",
                contract_hash=contract.hash,
                removed=gone.get(partition, _none()),
            )
            classifications.append(classification)
            findings += classification.findings
            in_kafka = records.contents()
            for table, rows_there in (("target", target_rows), ("quarantine", quarantined)):
                findings += of_other_records(partition, table, rows_there, in_kafka)
            if len(elsewhere := classification.elsewhere.offsets()):
                decode = decode or decoder(session, contract, topic.id)
                left = removals_of(books, topic.id, partition)
                findings += lost(engine, decode, reader, partition, elsewhere, places.target, ids, deleted, of_partition, left)
    gaps: dict[str, int] = {}
    for classification in classifications:
        for kind, offsets in classification.gaps:
            name = kind.name.lower().replace("_", " ")
            gaps[name] = gaps.get(name, 0) + len(offsets)
    return Reread(
        sum(each.records for each in classifications),
        sum(len(each.in_target) + len(each.in_both) for each in classifications),
        sum(len(each.in_quarantine) for each in classifications),
        sum(len(each.removed) for each in classifications),
        sum(len(each.elsewhere) for each in classifications),
        gaps,
        foreign + sum(len(each.unverifiable) for each in classifications),
        tuple(findings),
    )


def removals_of(books: Books, topic_id: str, partition: int) -> list[Gone]:
    """What retention and erasures removed of the batches and replays of a partition."""
    lines = (line for line in (*books.replays, *books.batches) if (line.topic.id, line.posting.key.partition) == (topic_id, partition))
    ranges = {line.posting.key: line.posting.range for line in lines}
    found = []
    for line in books.of("retention", "erasure"):
        at, target = ranges.get(line.posting.key), line.posting.target
        if at is not None:
            rows = -target.rows if target is not None else 0
            found.append(Gone(at, rows - line.posting.quarantine.rows, rows > 0))
    return found


def _read_to(target: DeltaLog, name: str, topic_id: str) -> dict[int, Position]:
    """The ends of the newest batch or seek in the target's log, if it has read this topic."""
    ours = (commit.batch_commit for commit in target.newest_first() if commit.batch_commit is not None)
    newest = next((each for each in ours if each.name == name and each.ranges), None)
    return newest.read_to if newest is not None and newest.topic.id == topic_id else {}


def _none() -> Offsets:
    return np.empty(0, np.int64)


def _removed_positions(engine: Engine, path: str, columns: Columns, where: str, deleted: Iterable[Commit]) -> dict[int, Offsets]:
    """The offsets of rows that these DELETE commits removed, by partition, as far as the versions before and after can still be read."""
    found: dict[int, list[Offsets]] = {}
    for commit in deleted:
        try:
            gone = positions(engine, At(path, commit.version - 1), columns, where, but_not_at=commit.version)
        except Unreadable:
            continue  # VACUUM has taken the files
        for partition, offsets in gone.items():
            found.setdefault(partition, []).append(offsets)
    return {partition: np.concatenate(parts) for partition, parts in found.items()}
