"""A range of a partition as lines to display: batches, markers, holes, and the outcome of each transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from ingest.kafka.log.fetch import Bounds
from ingest.kafka.log.log_reader import Log, Stretch, stretches
from ingest.kafka.log.partition_scan import Kind
from ingest.kafka.log.record_batch import Marker
from ingest.runtime.errors import InvalidInput

Transaction = Literal["committed", "aborted", "open"]

# A first guess of how many offsets the last lines span; later guesses use the number of lines found.
_LOOK_BACK = 1000


@dataclass(frozen=True)
class LogLine:
    """One batch, or a range of offsets without a batch; `first` and `last` are both included.

    `kind` is data, commit, abort (markers), hole or expired. `records` and `size_bytes` are 0 without a batch. If there are fewer
    records than offsets, compaction has removed the others. `time` is the time of the latest record, None without one. `producer` is
    `id:epoch`, None if the producer is not idempotent. `transaction` is the outcome of the batch's transaction, None without one.
    """

    first: int
    last: int
    kind: Literal["data", "commit", "abort", "hole", "expired"]
    records: int = 0
    size_bytes: int = 0
    time: datetime | None = None
    compression: str = "none"
    producer: str | None = None
    transaction: Transaction | None = None


@dataclass(frozen=True)
class PartitionView:
    """Lines of one partition, by ascending offset. `more`: the requested range has further lines."""

    partition: int
    bounds: Bounds
    lines: tuple[LogLine, ...]
    more: bool = False


def view(log: Log, partition: int, *, start: int | None = None, end: int | None = None, limit: int = 50) -> PartitionView:
    """Up to `limit` lines of [start, end): the first ones if `start` is given, else the last ones.

    Raises InvalidInput PARTITION_UNKNOWN, RANGE_INVALID or OFFSET_BEYOND_END, and the InvalidEnvironment errors of `scan`.
    """
    bounds = log.bounds(partition)
    stop = bounds.high_watermark if end is None else end
    for name, offset in (("--from", start), ("--to", end)):
        if offset is not None and offset > bounds.high_watermark:
            raise InvalidInput(
                "OFFSET_BEYOND_END",
                f"{name} {offset} is beyond the end of partition {partition}.",
                expected=f"an offset up to {bounds.high_watermark}, where it ends (its log starts at {bounds.log_start}).",
                remedy=f"correct {name}.",
            )
    if (start or 0) > stop or stop < 0 or (start or 0) < 0:
        raise InvalidInput(
            "RANGE_INVALID",
            f"--from {start or 0} --to {stop} is not a range of offsets.",
            expected="0 ≤ from ≤ to; the offset at --to is not shown.",
            remedy="correct --from or --to.",
        )
    if start is None:
        return PartitionView(partition, bounds, _last(log, partition, bounds, stop, limit))
    shown: list[LogLine] = []
    for line in _lines(log, partition, start, stop):
        if len(shown) == limit:
            return PartitionView(partition, bounds, _decided(log, partition, bounds, shown), more=True)
        shown.append(line)
    return PartitionView(partition, bounds, _decided(log, partition, bounds, shown))


def _last(log: Log, partition: int, bounds: Bounds, end: int, limit: int) -> tuple[LogLine, ...]:
    """The last `limit` lines before `end`. A log can only be read forwards, so start further back until there are enough lines."""
    back, begin = _LOOK_BACK, bounds.log_start if end > bounds.log_start else 0
    while True:
        start = max(begin, end - back)
        shown = list(_lines(log, partition, start, end))
        if len(shown) >= limit or start == begin:
            return _decided(log, partition, bounds, shown[-limit:])
        back = max(2 * back, back * (limit + 5) // max(1, len(shown)))


def _lines(log: Log, partition: int, start: int, end: int) -> Iterator[LogLine]:
    for stretch in stretches(log, partition, start, end):
        if stretch.kind is not Kind.BEYOND:
            yield _line(stretch)


def _line(stretch: Stretch) -> LogLine:
    batch = stretch.batch
    if batch is None:
        return LogLine(stretch.start, stretch.end - 1, "expired" if stretch.kind is Kind.EXPIRED else "hole")
    # A batch is one line, even if the range starts or ends in the middle of it.
    line = LogLine(
        batch.base_offset,
        batch.last_offset,
        "data",
        batch.record_count,
        batch.size_bytes,
        _time(batch.max_timestamp_ms),
        batch.compression.name.lower(),
        f"{batch.producer_id}:{batch.producer_epoch}" if batch.producer_id >= 0 else None,
    )
    if stretch.kind is Kind.HOLE:
        return replace(line, kind="hole")
    if stretch.kind is Kind.COMMIT_MARKER:
        return replace(line, kind="commit", transaction="committed")
    if stretch.kind is Kind.ABORT_MARKER:
        return replace(line, kind="abort", transaction="aborted")
    if not batch.transactional:
        return line
    decided: dict[Kind, Transaction] = {Kind.COMMITTED: "committed", Kind.ABORTED: "aborted"}
    return replace(line, transaction=decided.get(stretch.kind, "open"))


def _decided(log: Log, partition: int, bounds: Bounds, lines: list[LogLine]) -> tuple[LogLine, ...]:
    """The lines with the outcomes of transactions above the last stable offset.

    The index of aborted transactions does not cover these offsets, but the producer's next marker gives the outcome. It may lie after
    the lines.
    """
    undecided = [line for line in lines if line.transaction == "open"]
    if not undecided:
        return tuple(lines)
    markers: dict[str, list[tuple[int, Transaction]]] = {}
    for stretch in stretches(log, partition, undecided[0].first, bounds.high_watermark):
        batch = stretch.batch
        if batch is not None and batch.control and batch.marker is not None:
            ending: Transaction = "committed" if batch.marker is Marker.COMMIT else "aborted"
            markers.setdefault(str(batch.producer_id), []).append((batch.base_offset, ending))
    return tuple(_ended(line, markers) if line.transaction == "open" else line for line in lines)


def _ended(line: LogLine, markers: dict[str, list[tuple[int, Transaction]]]) -> LogLine:
    # Compare producer ids only: the marker of a fenced producer's transaction has a later epoch.
    coming = markers.get((line.producer or "").partition(":")[0], [])
    return replace(line, transaction=next((ending for offset, ending in coming if offset > line.last), "open"))


def _time(stamp_ms: int) -> datetime | None:
    """The time of a record; None for -1 (no time) and for values that are no valid time (a producer that sends microseconds, say)."""
    try:
        return datetime.fromtimestamp(stamp_ms / 1000, UTC) if stamp_ms >= 0 else None
    except (OverflowError, OSError, ValueError):
        return None
