"""Where a seek begins, and what that means: offsets that are left out, offsets that are read again (I6). `plan` is pure.

One theory of what is missing serves verify and seek: a batch of which nothing is missing is whole, and so is an accepted gap. What lies
before the new beginning and is not whole is a gap; it needs the user's word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ingest.delta.delta_sql import asked
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
# What a seek does not mend: somebody else's table, transaction ids that expire, another topic in the contract, a broker that lost records.
NOT_MENDED = ("TABLE_FOREIGN", "TXN_RETENTION", "TOPIC_CHANGED", "PARTITIONS_LOST", "BROKER_BEHIND")


@dataclass(frozen=True)
class Aim:
    """Where to begin: at the first offset that the table lacks, at the topic's earliest or latest offsets, or at `offsets`, a partition
    that is not among them as `table`."""

    kind: Kind
    offsets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Seeking:
    """What a seek asks for, and how the user said it."""

    aim: Aim
    accept_gap: bool
    reason: str


@dataclass(frozen=True)
class SeekPlan:
    """What a seek will do: where each partition begins, which offsets nobody will have read, which are read again."""

    starts: Mapping[int, int]
    gaps: tuple[OffsetRange, ...]
    again: tuple[OffsetRange, ...]


def counted(session: SparkSession | None, places: Places, state: StartState, seeking: Seeking) -> SeekPlan:
    """Count what the table accounts for, then plan. Raises as `plan`, and Unreadable."""
    from ingest.verify.coverage import coverage  # a start that seeks nothing counts nothing

    assert state.broker is not None, "a seek asks the broker first"
    topic_id = state.broker.topic.id
    refuse(state, seeking.aim)
    covered = asked(places.lake, session, lambda engine: coverage(engine, places, topic_id))
    return plan(state, seeking.aim, covered, accept_gap=seeking.accept_gap)


def plan(state: StartState, aim: Aim, coverage: Coverage, *, accept_gap: bool) -> SeekPlan:
    """The beginning by partition; `coverage` is of the broker's topic.

    Raises the refusals that a seek does not mend, Refused TOPIC_RECREATED for `--to table` on another topic, Refused GAP_NOT_ACCEPTED,
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
        # Once anything was read, every partition counts from 0 unless an epoch began it later; before that a seek leaves nothing out.
        begin = coverage.begins.get(partition, 0 if read else None)
        lacks = coverage.first_missing(partition) if partition in coverage.begins else begin or 0
        table = max(earliest, lacks) if coverage.known else earliest
        start = given.get(partition, {"earliest": earliest, "latest": latest}.get(aim.kind, table))
        if partition not in given and start > latest:
            raise refusals.broker_behind(state.name, broker.topic.name, [(partition, start, latest)])
        if not earliest <= start <= latest:
            raise _invalid(f"partition {partition} holds [{earliest}, {latest}), {start} is not in it", broker)
        if partition in given or aim.kind == "latest":  # nobody can begin behind an open transaction: at its beginning, then
            start = min(start, max(earliest, broker.decided.get(partition, latest)))
        starts[partition] = start
        if begin is not None and begin < start:
            left_out = Intervals.of([(begin, start)]).minus(coverage.whole.get(partition, EMPTY))
            gaps += [OffsetRange(partition, *each) for each in left_out]
    if gaps and not accept_gap:
        raise refusals.gap_not_accepted(state.name, [(each.partition, each.start, each.end) for each in gaps])
    return SeekPlan(starts, tuple(gaps), tuple(_again(starts, coverage)))


def _again(starts: Mapping[int, int], coverage: Coverage) -> Iterator[OffsetRange]:
    for partition, start in starts.items():
        if start < (end := coverage.ends.get(partition, 0)):
            yield OffsetRange(partition, start, end)


def refuse(state: StartState, aim: Aim) -> None:
    """Raise what a seek does not mend: asked before `coverage` reads the tables, which may be somebody else's."""
    refused = [each for each in refusals_of(state) if each.code in NOT_MENDED]
    if refused:
        raise refused[0]
    newest, broker = state.target.newest, state.broker
    if newest is None or broker is None or aim.kind not in ("table", "offsets"):
        return
    another: Refused | None = topic_refused(state.name, broker.topic, newest.topic)
    # Where ids cannot be compared, the user says by `--to table` that it is the same topic.
    if another is not None and broker.topic.id and newest.topic.id and (aim.kind == "table" or set(dict(aim.offsets)) < set(broker.bounds)):
        raise another


def _invalid(found: str, broker: TopicState) -> InvalidInput:
    bounds = ", ".join(f"{p}:{first}..{end}" for p, (first, end) in sorted(broker.bounds.items()))
    return InvalidInput("OFFSETS_INVALID", f"{found}.", expected=f"offsets that the topic holds: {bounds}.", remedy="correct --to.")
