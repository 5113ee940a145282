"""Where a new epoch begins, and what that means: gaps that are jumped over, stretches that are read again (I6). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ingest.errors import InvalidInput, Refused
from ingest.stream import refusals
from ingest.stream.assessment import Assessment
from ingest.stream.binding import Binding, FormerEpoch, Rebase
from ingest.stream.in_force import InForce
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.mark import Mark
from ingest.stream.preflight import BrokerFacts

Kind = Literal["table", "earliest", "latest", "offsets"]


@dataclass(frozen=True)
class Aim:
    """Where to begin: where the table ends, at the topic's earliest or latest offsets, or at `offsets` (the rest as table)."""

    kind: Kind
    offsets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class TableEnd:
    """Where the batches in force end, by partition, and how each epoch stands; `version` is the table's newest.

    `lost` is where the first records lie that the quarantine has lost, by topic id and partition.
    """

    version: int
    topic_id: str
    ends: Mapping[int, int]
    former: tuple[FormerEpoch, ...]
    lost: Mapping[tuple[str, int], int] = field(default_factory=dict)


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


def table_end(assessment: Assessment, in_force: InForce, name: str) -> TableEnd:
    """What the table proves to have read: its newest batch in force tells where, or the newest epoch's baseline if none followed it."""
    newest: dict[str, tuple[Mark, int]] = {}
    versions = set()
    for commit in in_force.commits():
        versions.add(commit.version)
        mark = commit.mark
        if mark is not None and f"{mark.pipeline}.{mark.table}" == name:
            newest.setdefault(mark.id.query_id, (mark, commit.version))
    summary, horizon = assessment.summary, in_force.before_the_log()
    for query_id, last in summary.last.items():
        # A rebase has said which batches of an epoch that it ended were in force; the ledger's last row may be a later one.
        if query_id not in newest and query_id not in summary.ended and 0 <= last.version <= horizon:
            newest[query_id] = (last.mark, last.version)
    epochs = {**summary.epochs, **{query: mark.epoch for query, (mark, _) in newest.items()}}
    former = tuple(
        FormerEpoch(
            query_id,
            epoch,
            _last_batch(query_id, newest, summary, horizon),
            newest[query_id][0].topic if query_id in newest else "",
            newest[query_id][0].topic_id if query_id in newest else "",
            tuple((each.partition, each.end) for each in newest[query_id][0].ranges) if query_id in newest else (),
        )
        for query_id, epoch in sorted(epochs.items(), key=lambda item: item[1])
    )
    version = max(versions, default=-1)
    last_mark = max(newest.values(), key=lambda each: each[1], default=None)
    begins = [begin for begin in summary.begins.values() if begin.table_version in versions or begin.table_version <= horizon]
    begin = max(begins, key=lambda each: (each.table_version, epochs[each.query_id]), default=None)
    if begin is not None and begin.query_id not in newest and (last_mark is None or begin.table_version >= last_mark[1]):
        return TableEnd(version, begin.topic_id, begin.baseline, former)
    if last_mark is None:
        return TableEnd(version, "", {}, former)
    return TableEnd(version, last_mark[0].topic_id, {each.partition: each.end for each in last_mark[0].ranges}, former)


def _last_batch(query_id: str, newest: Mapping[str, tuple[Mark, int]], summary: LedgerSummary, horizon: int) -> int:
    if query_id in newest:
        return newest[query_id][0].id.number
    if horizon >= 0 and query_id in summary.ended:
        return summary.ended[query_id]
    return 0 if query_id in summary.begins else -1


def plan(name: str, aim: Aim, end: TableEnd, broker: BrokerFacts, table_id: str, *, accept_gap: bool) -> RebasePlan:
    """The baseline by partition. Raises Refused GAP_NOT_ACCEPTED, InvalidInput OFFSETS_INVALID."""
    same_topic = not end.topic_id or not broker.topic_id or end.topic_id == broker.topic_id
    # Offsets of a topic that was deleted and made again mean nothing in the new one.
    reached = dict(end.ends) if same_topic else {}
    baseline: dict[int, int] = {}
    given = dict(aim.offsets)
    if unknown := sorted(set(given) - set(broker.bounds)):
        raise _invalid(f"topic {broker.topic} has no partition {', '.join(map(str, unknown))}", broker)
    behind = [(p, reached[p], latest) for p, (_, latest) in sorted(broker.bounds.items()) if reached.get(p, 0) > latest]
    if behind:
        raise refusals.broker_behind(name, broker.topic, behind)
    for partition, (earliest, latest) in broker.bounds.items():
        # What the quarantine has lost is read again: the table goes no further than its quarantine.
        whole = min(reached.get(partition, 0), end.lost.get((broker.topic_id, partition), reached.get(partition, 0)))
        start = {"earliest": earliest, "latest": latest}.get(aim.kind, max(earliest, whole))
        start = given.get(partition, start)
        if partition in given and not earliest <= start <= latest:
            raise _invalid(f"partition {partition} holds [{earliest}, {latest}), {start} is not in it", broker)
        baseline[partition] = start
    # Where nothing was ever read it begins, and jumps over nothing.
    jumped = [(p, reached.get(p, 0), start) for p, start in sorted(baseline.items())] if reached or end.former else []
    gaps = tuple((p, before, start) for p, before, start in jumped if start > before)
    again = tuple((p, start, reached[p]) for p, start in sorted(baseline.items()) if start < reached.get(p, 0))
    if gaps and not accept_gap:
        each = ", ".join(f"partition {p} [{start}, {stop})" for p, start, stop in gaps)
        lost = sum(stop - start for _, start, stop in gaps)
        raise Refused(
            "GAP_NOT_ACCEPTED",
            f"the new checkpoint of {name} would jump over {each}: {lost} offsets that no batch has read.",
            expected="no offset left out, or your word that it may be.",
            remedy=f"`ingest rebase {name} --to table` where Kafka still holds them; else add --accept-gap: verify will always show them.",
        )
    here = {p: start for (topic_id, p), start in end.lost.items() if topic_id == broker.topic_id}
    not_regained = tuple((p, start, baseline[p]) for p, start in sorted(here.items()) if p in baseline and start < baseline[p])
    if not accept_gap and (not_regained or len(here) < len(end.lost)):
        raise _not_regained(name, not_regained)
    epoch = max((each.epoch for each in end.former), default=-1) + 1
    rebase = Rebase(end.former, tuple(sorted(baseline.items())), gaps, end.version)
    predecessors = tuple(each.query_id for each in end.former)
    return RebasePlan(Binding(broker.topic, broker.topic_id, table_id, max(epoch, 1), predecessors, rebase), again, not_regained)


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
