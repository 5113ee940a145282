"""The offsets that a table accounts for, as verify judges: where a seek to the table's end starts, and whether a start may continue."""

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
    """The offsets of one topic (by id) that the table accounts for, by partition.

    `begins`: the lowest offset at which an epoch of this topic started. `whole`: offsets in batches without missing rows, and in accepted
    gaps. `ends`: the highest end of any batch. `known` is False if target or quarantine contains rows of batches that are in neither ledger
    nor log: then nothing can be concluded about earlier offsets.
    """

    begins: Mapping[int, int]
    whole: Mapping[int, Intervals]
    ends: Mapping[int, int]
    known: bool

    def first_missing(self, partition: int) -> int:
        """The first offset, from where reading started, that is not whole. If all are, the end of the whole offsets."""
        begin = self.begins[partition]
        covered = next(((start, end) for start, end in self.whole.get(partition, EMPTY) if start <= begin < end), None)
        return begin if covered is None else covered[1]


def coverage(engine: Engine, places: Places, topic_id: str) -> Coverage:
    """Count rows as verify does. A missing table counts as empty. Raises Refused LOG_TORN, and Unreadable."""
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
        begins = dict.fromkeys(begins, 0)  # the start of the first epoch is lost: it may have been any offset
    for row in (row for row in read.gaps if row.topic_id == topic_id):
        whole.setdefault(row.partition, []).append(Intervals.of([(row.start_offset, row.end_offset)]))
    for each in (each for each in counted.judged if each.row.topic_id == topic_id):
        row = each.row
        offsets = Intervals.of([(row.start_offset, row.end_offset)])
        if row.kind == "batch":
            ends[row.partition] = max(row.end_offset, ends.get(row.partition, 0))
        if each.missing:
            lacking.setdefault(row.partition, []).append(offsets.minus(read.left_out(row)))
        elif each.least is None and row.kind == "batch":
            # A batch with `least` was read again or left out: the later batches and gaps count instead.
            whole.setdefault(row.partition, []).append(offsets)
    lacks = {partition: Intervals.union(parts) for partition, parts in lacking.items()}
    covered = {partition: Intervals.union(parts).minus(lacks.get(partition, EMPTY)) for partition, parts in whole.items()}
    return Coverage(begins, covered, ends, not counted.unknown)


def shortage(engine: Engine, places: Places) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Batches with missing rows, and rows of no known batch, both as findings in words. Raises the errors of `coverage`."""
    counted = account(engine, places, batch_history(engine, places))
    missing = (finding for each in counted.judged if each.missing for finding in each.findings())
    return tuple(map(str, missing)), tuple(map(str, counted.unknown))
