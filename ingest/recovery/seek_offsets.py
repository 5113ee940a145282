"""The plan of a seek: the offsets where it starts, the offsets that it leaves out and those that it reads again (I6). `plan` is pure.

Verify and seek share one definition. A batch is whole if none of its rows are missing; an accepted gap is whole too. Offsets before the new
start that are not whole are a gap, and the user must accept it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ingest.delta.delta_sql import asked
from ingest.delta.posting import Posting
from ingest.kafka.intervals import EMPTY, Intervals
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicState
from ingest.recovery import refusals
from ingest.recovery.decision import refusals_of, topic_refused
from ingest.recovery.start_state import StartState
from ingest.runtime.errors import InvalidInput, Refused
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.verify.coverage import Coverage

Kind = Literal["table", "earliest", "latest", "offsets"]
KINDS: tuple[Kind, ...] = ("table", "earliest", "latest")
# No seek mends a foreign table, transaction ids that expire, another topic in the contract, or a broker that lost records.
NOT_MENDED = ("TABLE_FOREIGN", "TXN_RETENTION", "TOPIC_CHANGED", "PARTITIONS_LOST", "BROKER_BEHIND", "LOG_TRUNCATED")


@dataclass(frozen=True)
class Aim:
    """Where a seek starts: at the first offset that the table lacks, at the topic's earliest or latest offsets, or at `offsets`.

    `offsets` are (partition, offset). A partition without an offset starts as with `table`.
    """

    kind: Kind
    offsets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Seeking:
    """A seek as the user requested it. `reason` is the option as typed; the commit records it."""

    aim: Aim
    accept_gap: bool
    reason: str


@dataclass(frozen=True)
class SeekPlan:
    """The start offset of each partition, the gaps that no batch will have read, and the ranges that are read again.

    `written_off` are the postings of what is missing now.
    """

    starts: Mapping[int, int]
    gaps: tuple[OffsetRange, ...]
    again: tuple[OffsetRange, ...]
    written_off: tuple[Posting, ...] = ()


def counted(session: SparkSession | None, places: Places, state: StartState, seeking: Seeking) -> SeekPlan:
    """Count the rows of the table, then plan the seek. Raises the errors of `plan`, and Unreadable."""
    from ingest.verify.coverage import coverage  # here, because a start without a seek counts nothing

    assert state.broker is not None, "a seek asks the broker first"
    topic_id = state.broker.topic.id
    refuse(state, seeking.aim)
    covered = asked(places.lake, session, lambda engine: coverage(engine, places, topic_id))
    return plan(state, seeking.aim, covered, accept_gap=seeking.accept_gap)


def plan(state: StartState, aim: Aim, coverage: Coverage, *, accept_gap: bool) -> SeekPlan:
    """Plan a seek. `coverage` is that of the broker's topic.

    Raises the refusals that no seek mends, Refused TOPIC_RECREATED for `--to table` on another topic, Refused GAP_NOT_ACCEPTED, and
    InvalidInput OFFSETS_INVALID.
    """
    broker = state.broker
    assert broker is not None, "a seek asks the broker first"
    refuse(state, aim)
    given = dict(aim.offsets)
    if unknown := sorted(set(given) - set(broker.bounds)):
        raise _invalid(f"topic {broker.topic.name} has no partition {', '.join(map(str, unknown))}", broker)
    read = state.was_read
    starts: dict[int, int] = {}
    gaps: list[OffsetRange] = []
    for partition, (earliest, latest) in sorted(broker.bounds.items()):
        # If the table was read before, a partition counts from offset 0, or from where its first epoch started. A first seek has no gap.
        begin = coverage.begins.get(partition, 0 if read else None)
        lacks = coverage.first_missing(partition) if partition in coverage.begins else begin or 0
        table = max(earliest, lacks) if coverage.known else earliest
        start = given.get(partition, {"earliest": earliest, "latest": latest}.get(aim.kind, table))
        if partition not in given and start > latest:
            raise refusals.broker_behind(state.name, broker.topic.name, [(partition, start, latest)])
        if not earliest <= start <= latest:
            raise _invalid(f"partition {partition} contains [{earliest}, {latest}), and {start} is not in it", broker)
        if partition in given or aim.kind == "latest":  # no reader can start after the beginning of an open transaction
            start = min(start, max(earliest, broker.decided.get(partition, latest)))
        starts[partition] = start
        if begin is not None and begin < start:
            left_out = Intervals.of([(begin, start)]).minus(coverage.whole.get(partition, EMPTY))
            gaps += [OffsetRange(partition, *each) for each in left_out]
    if gaps and not accept_gap:
        raise refusals.gap_not_accepted(state.name, [(each.partition, each.start, each.end) for each in gaps])
    return SeekPlan(starts, tuple(gaps), tuple(_again(starts, coverage)), coverage.written_off)


def _again(starts: Mapping[int, int], coverage: Coverage) -> Iterator[OffsetRange]:
    for partition, start in starts.items():
        if start < (end := coverage.ends.get(partition, 0)):
            yield OffsetRange(partition, start, end)


def refuse(state: StartState, aim: Aim) -> None:
    """Raise the refusals that no seek mends. Called before `coverage` reads the tables, because they may be foreign."""
    newest, broker = state.target.newest, state.broker
    refused = [each for each in refusals_of(state) if each.code in NOT_MENDED]
    # Without topic ids, a topic that was recreated looks like one that has lost records.
    if refused and not (refused[0].code == "LOG_TRUNCATED" and aim.kind == "earliest" and broker is not None and not broker.topic.id):
        raise refused[0]
    if newest is None or broker is None or aim.kind not in ("table", "offsets"):
        return
    another: Refused | None = topic_refused(state.name, broker.topic, newest.topic)
    # If ids cannot be compared, `--to table` is the user's statement that it is the same topic.
    if another is not None and broker.topic.id and newest.topic.id and (aim.kind == "table" or set(dict(aim.offsets)) < set(broker.bounds)):
        raise another


def _invalid(found: str, broker: TopicState) -> InvalidInput:
    bounds = ", ".join(f"{p}:{first}..{end}" for p, (first, end) in sorted(broker.bounds.items()))
    return InvalidInput("OFFSETS_INVALID", f"{found}.", expected=f"offsets of the topic, or its end: {bounds}.", remedy="correct --to.")
