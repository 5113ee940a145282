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
from ingest.kafka.offsets import OffsetRange, Partition
from ingest.kafka.topic_state import TopicState
from ingest.recovery import refusals
from ingest.recovery.decision import refusals_of, topic_refused
from ingest.recovery.numbering import Numbered
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

    `offsets` are by topic and partition; the topic may be empty if the contract names one only. A partition without an offset starts as
    with `table`.
    """

    kind: Kind
    offsets: tuple[tuple[tuple[str, int], int], ...] = ()

    def given(self, topics: Numbered) -> dict[Partition, int]:
        """The offsets by partition. Raises InvalidInput OFFSETS_INVALID for a topic or partition that is none of the contract's."""
        numbers = {state.topic.name: number for number, state in topics.states.items()}
        if len(numbers) == 1:
            numbers[""] = next(iter(topics.states))
        found: dict[Partition, int] = {}
        for (topic, partition), offset in self.offsets:
            if (number := numbers.get(topic)) is None:
                raise _invalid(
                    f"the contract names no topic {topic!r}" if topic else "--to names no topic, and the contract names several", topics
                )
            found[number, partition] = offset
        if unknown := sorted(set(found) - set(topics.bounds)):
            name = topics.sources[unknown[0][0]].name
            raise _invalid(f"topic {name} has no partition {', '.join(str(p) for n, p in unknown if n == unknown[0][0])}", topics)
        return found


@dataclass(frozen=True)
class Seeking:
    """A seek as the user requested it. `reason` is the option as typed; the commit records it."""

    aim: Aim
    accept_gap: bool
    reason: str


@dataclass(frozen=True)
class SeekPlan:
    """The start offset of each partition, the gaps that no batch will have read, and the ranges that are read again.

    `written_off` are the postings of what is missing now. `topics` has the names of the partitions' topics.
    """

    starts: Mapping[Partition, int]
    gaps: tuple[OffsetRange, ...]
    again: tuple[OffsetRange, ...]
    topics: Numbered
    written_off: tuple[Posting, ...] = ()


def counted(session: SparkSession | None, places: Places, state: StartState, seeking: Seeking) -> SeekPlan:
    """Count the rows of the table, then plan the seek. Raises the errors of `plan`, and Unreadable."""
    from ingest.verify.coverage import coverage  # here, because a start without a seek counts nothing

    topics = topics_of(state, seeking.aim)
    refuse(state, seeking.aim)
    covered = asked(places.lake, session, lambda engine: coverage(engine, places, topics.states.keys()))
    return plan(state, seeking.aim, covered, accept_gap=seeking.accept_gap)


def topics_of(state: StartState, aim: Aim) -> Numbered:
    """The topics with their numbers. If ids cannot be compared, `--to table` is the user's statement that it is the same topic."""
    assert state.broker is not None, "a seek asks the broker first"
    return state.numbered(by_name=aim.kind == "table")


def plan(state: StartState, aim: Aim, coverage: Coverage, *, accept_gap: bool) -> SeekPlan:
    """Plan a seek. `coverage` is that of the contract's topics.

    Raises the refusals that no seek mends, Refused TOPIC_RECREATED for `--to table` on another topic, Refused GAP_NOT_ACCEPTED, and
    InvalidInput OFFSETS_INVALID.
    """
    topics = topics_of(state, aim)
    refuse(state, aim)
    given, decided, read = aim.given(topics), topics.decided, state.was_read
    starts: dict[Partition, int] = {}
    gaps: list[OffsetRange] = []
    for of, (earliest, latest) in topics.bounds.items():
        (number, partition), topic = of, topics.sources[of[0]].name
        # If the table was read before, a partition counts from offset 0, or from where its first epoch started, also if the topic joins:
        # a damaged table may have forgotten that it was read. A first seek has no gap.
        begin = coverage.begins.get(of, 0 if read else None)
        lacks = coverage.first_missing(of) if of in coverage.begins else begin or 0
        table = max(earliest, lacks) if coverage.known else earliest
        start = given.get(of, {"earliest": earliest, "latest": latest}.get(aim.kind, table))
        if of not in given and start > latest:
            raise refusals.broker_behind(state.name, topic, [(partition, start, latest)])
        if not earliest <= start <= latest:
            raise _invalid(f"{topics.named(of)} contains [{earliest}, {latest}), and {start} is not in it", topics)
        if of in given or aim.kind == "latest":  # no reader can start after the beginning of an open transaction
            start = min(start, max(earliest, decided.get(of, latest)))
        starts[of] = start
        if begin is not None and begin < start:
            left_out = Intervals.of([(begin, start)]).minus(coverage.whole.get(of, EMPTY))
            gaps += [OffsetRange(partition, *each, source=number) for each in left_out]
    if gaps and not accept_gap:
        raise refusals.gap_not_accepted(state.name, [(topics.named(each.of), each.start, each.end) for each in gaps])
    return SeekPlan(starts, tuple(gaps), tuple(_again(starts, coverage)), topics, coverage.written_off)


def _again(starts: Mapping[Partition, int], coverage: Coverage) -> Iterator[OffsetRange]:
    for of, start in starts.items():
        if start < (end := coverage.ends.get(of, 0)):
            yield OffsetRange(of[1], start, end, source=of[0])


def refuse(state: StartState, aim: Aim) -> None:
    """Raise the refusals that no seek mends. Called before `coverage` reads the tables, because they may be foreign."""
    newest, topics = state.target.newest, topics_of(state, aim)
    refused = [each for each in refusals_of(state) if each.code in NOT_MENDED and not _mended(each, state, aim)]
    if refused:
        raise refused[0]
    if newest is None or aim.kind not in ("table", "offsets"):
        return
    given = set(dict(aim.offsets))
    for number in sorted(newest.active - topics.states.keys()):
        before = newest.sources[number]
        now = next((each for each in topics.states.values() if each.topic.name == before.name), None)
        # A topic that left the contract is left out. One that was recreated needs an offset for each partition.
        if now is not None and now.topic.comparable(before) and (aim.kind == "table" or not _named(given, now, topics)):
            raise topic_refused(state.name, before, [now.topic])


def _mended(refused: Refused, state: StartState, aim: Aim) -> bool:
    newest, broker = state.target.newest, state.broker or ()
    if refused.code == "TOPIC_CHANGED":  # a seek goes on with the other topics that were read, if any are left
        return newest is not None and bool({each.name for each in newest.sources} & {each.topic.name for each in broker})
    # Without topic ids, a topic that was recreated looks like one that has lost records.
    return refused.code == "LOG_TRUNCATED" and aim.kind == "earliest" and all(not each.topic.id for each in broker)


def _named(given: set[tuple[str, int]], now: TopicState, topics: Numbered) -> bool:
    names = (now.topic.name, "") if len(topics.states) == 1 else (now.topic.name,)
    return all(any((name, partition) in given for name in names) for partition in now.bounds)


def _invalid(found: str, topics: Numbered) -> InvalidInput:
    bounds = ", ".join(f"{topics.typed(of)}:{first}..{end}" for of, (first, end) in topics.bounds.items())
    return InvalidInput("OFFSETS_INVALID", f"{found}.", expected=f"offsets of the topic, or its end: {bounds}.", remedy="correct --to.")
