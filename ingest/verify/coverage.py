"""What a table accounts for of a topic, as verify judges: where a seek to the table's end begins, and whether a start may go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.delta.delta_sql import Engine
from ingest.kafka.intervals import EMPTY, Intervals
from ingest.ledger.batch_history import batch_history
from ingest.runtime.places import Places
from ingest.verify.count import account


@dataclass(frozen=True)
class Coverage:
    """What of one topic (id) the table accounts for, by partition.

    `begins`: the least offset where reading of this topic began. `whole`: offsets in batches of which nothing is missing, and in accepted
    gaps. `ends`: the greatest end that any batch reached. `known` False: rows stand in target or quarantine whose batch neither ledger nor
    log knows, so nothing can be concluded of what lies before.
    """

    begins: Mapping[int, int]
    whole: Mapping[int, Intervals]
    ends: Mapping[int, int]
    known: bool

    def first_missing(self, partition: int) -> int:
        """The first offset from where reading began on that is not whole: where all is, the end of it."""
        begin = self.begins[partition]
        covered = next(((start, end) for start, end in self.whole.get(partition, EMPTY) if start <= begin < end), None)
        return begin if covered is None else covered[1]


def coverage(engine: Engine, places: Places, topic_id: str) -> Coverage:
    """Count as verify does. Tables that are missing hold nothing. Raises Refused LOG_TORN, and Unreadable."""
    read = batch_history(engine, places)
    counted = account(engine, places, read)
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    whole: dict[int, list[Intervals]] = {}
    lacking: dict[int, list[Intervals]] = {}
    for row in (row for row in (*read.begins, *read.batches) if row.topic_id == topic_id):
        begins[row.partition] = min(row.start_offset, begins.get(row.partition, row.start_offset))
    first = min((row.epoch for row in (*read.begins, *read.batches) if row.topic_id == topic_id), default=0)
    if not any(row.epoch == first and row.why in ("first", "seek") for row in read.begins):
        begins = dict.fromkeys(begins, 0)  # what the first epoch began with is lost, and what came before is not known
    for row in (row for row in read.gaps if row.topic_id == topic_id):
        whole.setdefault(row.partition, []).append(Intervals.of([(row.start_offset, row.end_offset)]))
    for each in (each for each in counted.judged if each.row.topic_id == topic_id):
        row = each.row
        offsets = Intervals.of([(row.start_offset, row.end_offset)])
        ends[row.partition] = max(row.end_offset, ends.get(row.partition, 0))
        if each.missing:
            lacking.setdefault(row.partition, []).append(offsets.minus(read.left_out(row)))
        elif each.least is None:  # of others those speak that have read them again
            whole.setdefault(row.partition, []).append(offsets)
    lacks = {partition: Intervals.union(parts) for partition, parts in lacking.items()}
    covered = {partition: Intervals.union(parts).minus(lacks.get(partition, EMPTY)) for partition, parts in whole.items()}
    return Coverage(begins, covered, ends, not counted.unknown)


def shortage(engine: Engine, places: Places) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The batches of which something is missing, and the rows that no known batch put there, in words. Raises what `coverage` raises."""
    counted = account(engine, places, batch_history(engine, places))
    missing = (finding for each in counted.judged if each.missing for finding in each.findings())
    return tuple(map(str, missing)), tuple(map(str, counted.unknown))
