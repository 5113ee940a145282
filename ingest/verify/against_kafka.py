"""Verify against Kafka: read the ranges of all batches again, locate each record, and explain each gap (I4).

A record that is in neither target nor quarantine must be a duplicate (lost_records.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, Unreadable
from ingest.delta.reachable import deletes
from ingest.delta.stored_rows import QUARANTINE, TARGET, Columns, positions
from ingest.kafka.intervals import Offsets
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.fetch import TopicReader
from ingest.kafka.log.leader_epochs import taken_back
from ingest.kafka.log.log_reader import scan
from ingest.kafka.offsets import Partition, Position, of_source
from ingest.kafka.topic import Topic
from ingest.kafka.topic_state import TopicId
from ingest.ledger.books import Books
from ingest.runtime.files import files_of
from ingest.runtime.places import Places
from ingest.verify.balance import Finding, topic_of
from ingest.verify.classification import Classification, classify
from ingest.verify.lost_records import Gone, decoder, lost
from ingest.verify.same_record import Contents, Records, compared_ids, of_other_records, reader_of, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Reread:
    """Kafka's view of the batches' ranges, as counts: records by where they are, gaps by their reason.

    `removed` records are rows that a DELETE took. `duplicate` records are in neither table. `unverifiable` are offsets that Kafka no longer
    has, or that belong to another topic.
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
    topics: Sequence[Topic],
    books: Books,
) -> Reread:
    """Compare books and tables with the contract's topics, which a plain consumer reads at the level of record batches.

    Batches of any other topic, or topic id, are unverifiable. `session` is called only if Spark has to decode records that are in neither
    table. Raises the InvalidEnvironment errors of TopicReader and `scan`, and Unreadable.
    """
    numbered = numbered_topics(books, topics)
    ranges = [(line, at) for line in books.batches if (at := line.posting.range) is not None and len(at)]
    tables = (places.target, TARGET, "_kafka_timestamp", compared_ids(contract)), (places.quarantine, QUARANTINE, "kafka_timestamp", ())
    wheres = [f"`{columns.source}` IN ({', '.join(map(str, numbered))})" if numbered else "false" for _, columns, *_ in tables]
    stored_rows, stored_records = (
        stored(engine, At(path), columns, time, where, compared)
        for (path, columns, time, compared), where in zip(tables, wheres, strict=True)
    )
    logs = [DeltaLog(files_of(places.lake, engine.session), path) for path, *_ in tables]
    deleted, records_deleted = (list(deletes(log, log.newest())) for log in logs)
    gone = _removed_positions(engine, places.target, TARGET, wheres[0], deleted)
    for of, taken in _removed_positions(engine, places.quarantine, QUARANTINE, wheres[1], records_deleted).items():
        gone[of] = np.concatenate((gone.get(of, _none()), taken))
    read_to, read_again, decode = _read_to(logs[0], places.name), reader_of(contract), None
    topic_ids = tuple(numbered[number].id if number in numbered else "" for number in range(1 + max(numbered, default=-1)))
    classifications: list[Classification] = []
    findings: list[Finding] = []
    for number, topic in numbered.items():
        found: list[Finding] = []
        with TopicReader(kafka, topic.name) as reader:
            for partition, (start, end) in taken_back(reader, of_source(read_to, number)).items():
                what = "were read, and the topic's log has lost them: its leader was elected without them"
                found.append(Finding("LOG_TRUNCATED", what, partition=partition, start_offset=start, end_offset=end))
            for of in sorted({at.of for _, at in ranges if at.source == number}):
                lines, each = [line for line, at in ranges if at.of == of], [at for _, at in ranges if at.of == of]
                target_rows, quarantined = stored_rows.get(of, Contents.of(())), stored_records.get(of, Contents.of(()))
                records = Records(read_again)
                classification = classify(
                    scan(reader, of[1], min(at.start for at in each), max(at.end for at in each), records.see),
                    lines,
                    target_rows.offsets,
                    quarantined.offsets,
                    isolation=contract.source.isolation_level,
                    contract_hash=contract.hash,
                    removed=gone.get(of, _none()),
                )
                classifications.append(classification)
                found += classification.findings
                in_kafka = records.contents()
                for table, rows_there in (("target", target_rows), ("quarantine", quarantined)):
                    found += of_other_records(of[1], table, rows_there, in_kafka)
                if len(elsewhere := classification.elsewhere.offsets()):
                    decode = decode or decoder(session, contract, topic_ids)
                    ids, left = event_id_columns(contract), removals_of(books, of)
                    found += lost(engine, decode, reader, of, elsewhere, places.target, ids, deleted, lines, left)
        findings += (replace(each, topic=topic_of(books, number)) for each in found)
    gaps: Counter[str] = Counter()
    for classification in classifications:
        for kind, offsets in classification.gaps:
            gaps[kind.name.lower().replace("_", " ")] += len(offsets)
    return Reread(
        sum(each.records for each in classifications),
        sum(len(each.in_target) + len(each.in_both) for each in classifications),
        sum(len(each.in_quarantine) for each in classifications),
        sum(len(each.removed) for each in classifications),
        sum(len(each.elsewhere) for each in classifications),
        dict(gaps),
        sum(len(at) for _, at in ranges if at.source not in numbered) + sum(len(each.unverifiable) for each in classifications),
        tuple(findings),
    )


def numbered_topics(books: Books, topics: Sequence[Topic]) -> dict[int, Topic]:
    """The topics by the numbers that the table has for them, if it has read them; one that was recreated meanwhile is another topic."""
    found: dict[int, Topic] = {}
    for topic in topics:
        now = TopicId(topic.name, topic.id, topic.cluster)
        if known := [number for number, before in books.topics.items() if now.is_same(before)]:
            found[max(known)] = topic
    return dict(sorted(found.items()))


def removals_of(books: Books, of: Partition) -> list[Gone]:
    """What retention and erasures removed of the batches and replays of a partition."""
    ranges = {line.posting.key: line.posting.range for line in (*books.replays, *books.batches) if line.posting.key.of == of}
    found = []
    for line in books.of("retention", "erasure"):
        at, target = ranges.get(line.posting.key), line.posting.target
        if at is not None:
            rows = -target.rows if target is not None else 0
            found.append(Gone(at, rows - line.posting.quarantine.rows, rows > 0))
    return found


def _read_to(target: DeltaLog, name: str) -> dict[Partition, Position]:
    """The ends of the newest batch or seek in the target's log."""
    ours = (commit.batch_commit for commit in target.newest_first() if commit.batch_commit is not None)
    newest = next((each for each in ours if each.name == name and each.ranges), None)
    return newest.read_to if newest is not None else {}


def _none() -> Offsets:
    return np.empty(0, np.int64)


def _removed_positions(engine: Engine, path: str, columns: Columns, where: str, deleted: Iterable[Commit]) -> dict[Partition, Offsets]:
    """The offsets of rows that these DELETE commits removed, by partition, as far as the versions before and after can still be read."""
    found: dict[Partition, list[Offsets]] = {}
    for commit in deleted:
        try:
            gone = positions(engine, At(path, commit.version - 1), columns, where, but_not_at=commit.version)
        except Unreadable:
            continue  # VACUUM has taken the files
        for of, offsets in gone.items():
            found.setdefault(of, []).append(offsets)
    return {of: np.concatenate(parts) for of, parts in found.items()}
