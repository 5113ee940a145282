"""Where a new epoch begins, and what that means: gaps that are jumped over, stretches that are read again (I6). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ingest.errors import InvalidInput, Refused
from ingest.stream import refusals
from ingest.stream.binding import Binding, Rebase
from ingest.stream.decide import one_topic
from ingest.stream.situation import BrokerFacts
from ingest.stream.table_end import TableEnd

Kind = Literal["table", "earliest", "latest", "offsets"]


@dataclass(frozen=True)
class Aim:
    """Where to begin: where the table ends, at the topic's earliest or latest offsets, or at `offsets` (the rest as table)."""

    kind: Kind
    offsets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class RebasePlan:
    """What a rebase will do. `read_again` are (partition, start, end) that batches in force have read before; `not_regained` those
    that would have to be read again for the sake of the quarantine, and will not be."""

    binding: Binding
    read_again: tuple[tuple[int, int, int], ...]
    not_regained: tuple[tuple[int, int, int], ...] = ()

    @property
    def rebase(self) -> Rebase:
        """The baseline and the gaps."""
        assert self.binding.rebase is not None
        return self.binding.rebase


def plan(name: str, aim: Aim, end: TableEnd, broker: BrokerFacts, table_id: str, *, accept_gap: bool) -> RebasePlan:
    """The baseline by partition. Raises Refused TOPIC_CHANGED, BROKER_BEHIND, GAP_NOT_ACCEPTED, InvalidInput OFFSETS_INVALID."""
    # The checkpoint would say so as well, if it were there.
    if end.topic and end.topic != broker.topic:
        raise refusals.topic_other(name, end.topic, broker.topic)
    same_topic = one_topic(end.topic_id, broker.topic_id)
    lost = dict(end.lost)
    for topic_id, p, start, _ in end.pending:
        lost[topic_id, p] = min(start, lost.get((topic_id, p), start))
    # Offsets of a topic that was deleted and made again mean nothing in the new one.
    reached = dict(end.ends) if same_topic else {}
    # A table without batches stands where reading began.
    stands = {p: reached.get(p, (end.began or {}).get(p, 0)) for p in sorted(broker.bounds)}
    baseline: dict[int, int] = {}
    given = dict(aim.offsets)
    if unknown := sorted(set(given) - set(broker.bounds)):
        raise _invalid(f"topic {broker.topic} has no partition {', '.join(map(str, unknown))}", broker)
    behind = [(p, at, broker.bounds[p][1]) for p, at in stands.items() if at > broker.bounds[p][1]]
    if behind:
        raise refusals.broker_behind(name, broker.topic, behind)
    for partition, (earliest, latest) in broker.bounds.items():
        # What the quarantine has lost is read again: the table goes no further than its quarantine.
        whole = min(stands[partition], lost.get((broker.topic_id, partition), stands[partition]))
        start = {"earliest": earliest, "latest": latest}.get(aim.kind, max(earliest, whole))
        start = given.get(partition, start)
        if partition in given and not earliest <= start <= latest:
            raise _invalid(f"partition {partition} holds [{earliest}, {latest}), {start} is not in it", broker)
        if partition in given or aim.kind == "latest":  # nobody can begin behind a transaction that is open: at its beginning, then
            start = min(start, max(earliest, broker.decided.get(partition, latest)))
        baseline[partition] = start
    # Without a topic's id nothing says that what was read was of this one; what the quarantine has lost is as if it were not read.
    known = [each for each in end.read if broker.topic_id and each[0] == broker.topic_id]
    read = [(p, start, min(stop, lost.get((topic_id, p), stop))) for topic_id, p, start, stop in known]
    # Where nothing was ever read it begins, and jumps over nothing.
    nothing = not reached and not end.former and end.began is None
    gaps = () if nothing else tuple(gap for p, at in stands.items() for gap in _unread(p, at, baseline[p], read))
    again = tuple((p, start, reached[p]) for p, start in sorted(baseline.items()) if start < reached.get(p, 0))
    if gaps and not accept_gap:
        each = ", ".join(f"partition {p} [{start}, {stop})" for p, start, stop in gaps)
        left_out = sum(stop - start for _, start, stop in gaps)
        raise Refused(
            "GAP_NOT_ACCEPTED",
            f"the new checkpoint of {name} would jump over {each}: {left_out} offsets that are still to be read.",
            expected="no offset left out, or your word that it may be.",
            remedy=f"`ingest rebase {name} --to table` where Kafka still holds them; else add --accept-gap: verify will always show them.",
        )
    here = {p: start for (topic_id, p), start in lost.items() if topic_id == broker.topic_id}
    not_regained = tuple((p, start, baseline[p]) for p, start in sorted(here.items()) if p in baseline and start < baseline[p])
    if not accept_gap and (not_regained or len(here) < len(lost)):
        raise _not_regained(name, not_regained)
    epoch = max((each.epoch for each in end.former), default=-1) + 1
    # As far as anything has read, also where an epoch that began before it has not come that far: none of it is a gap to the next rebase.
    stops = [*reached.items(), *((p, stop) for topic_id, p, _, stop in (*end.read, *end.pending) if topic_id == broker.topic_id)]
    ends = {p: max((stop for of, stop in stops if of == p), default=0) for p in here}
    again_for_it = ((broker.topic_id, p, max(start, baseline[p]), ends[p]) for p, start in sorted(here.items()) if p in baseline)
    regain = tuple(gap for gap in again_for_it if gap[2] < gap[3])
    rebase = Rebase(end.former, tuple(sorted(baseline.items())), gaps, end.version, regain, end.stamp)
    predecessors = tuple(each.query_id for each in end.former)
    binding = Binding(broker.topic, broker.topic_id, table_id, max(epoch, 1), predecessors, rebase, broker.cluster)
    return RebasePlan(binding, again, not_regained)


def _unread(partition: int, start: int, stop: int, read: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """What of these offsets is in none of the ranges `read` (partition, start, end)."""
    for of, since, until in sorted(read):
        if of == partition and since < until and start < until:
            if start < min(since, stop):
                yield partition, start, min(since, stop)
            start = until
    if start < stop:
        yield partition, start, stop


def _not_regained(name: str, lost: Sequence[tuple[int, int, int]]) -> Refused:
    each = ", ".join(f"partition {p} [{start}, {stop})" for p, start, stop in lost) or "offsets of a topic that is no more"
    return Refused(
        "GAP_NOT_ACCEPTED",
        f"the quarantine of {name} has lost records of {each}, which the new checkpoint would not read again.",
        expected="every record that is no row in quarantine, or your word that those may be missing.",
        remedy=f"bring the quarantine back (RESTORE TABLE to its newest state); or `ingest rebase {name} --to table` where Kafka still "
        "holds them; else add --accept-gap: verify will always show that they are missing.",
    )


def _invalid(found: str, broker: BrokerFacts) -> InvalidInput:
    bounds = ", ".join(f"{p}:{first}..{end}" for p, (first, end) in sorted(broker.bounds.items()))
    return InvalidInput("OFFSETS_INVALID", f"{found}.", expected=f"offsets that the topic holds: {bounds}.", remedy="correct --to.")
