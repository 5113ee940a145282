"""The decision of a start: continue, and at which offsets, or refuse. The table of docs/reference/errors.md, in its order (I2, I6).

Pure: no Spark, no files, no broker. The first of several refusals is reported. The checkpoints never decide where a start continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ingest.delta.batch_commit import FENCE, NO_BATCH
from ingest.kafka.offsets import Partition, of_source
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.ledger_reader import Newest
from ingest.recovery import refusals
from ingest.recovery.numbering import Numbered
from ingest.recovery.start_state import StartState
from ingest.runtime.errors import Refused


@dataclass(frozen=True)
class Create:
    """There is no table, and no trace of a former one."""


@dataclass(frozen=True)
class Start:
    """Start at these offsets. `first`: nothing was read before, and the offsets are the contract's `starting_offsets` as of now.

    `joins` are the numbers of topics that the newest epoch has not read.
    """

    offsets: Mapping[Partition, int]
    first: bool = False
    joins: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Refuse:
    """The start is refused."""

    error: Refused


Decision = Create | Start | Refuse


def decide(state: StartState, starting_offsets: Literal["earliest", "latest"] = "earliest") -> Decision:
    """Decide what a start does. Without `state.broker` no broker refusal is checked, and a first start has no offsets."""
    if (refused := next(refusals_of(state), None)) is not None:
        return Refuse(refused)
    if state.target.snapshot is None:
        return Create()
    newest, topics = state.target.newest, state.topics
    if newest is not None:
        firsts = topics.firsts if topics is not None else {}
        partitions = sorted({*newest.ends, *firsts})
        # A topic that joins is read from its first record, a partition that was added to a known topic from offset 0.
        joins = frozenset(number for number, _ in firsts) - newest.active
        return Start({of: newest.ends.get(of, firsts[of] if of[0] in joins else 0) for of in partitions}, joins=joins)
    if topics is None:
        return Start({}, first=True)
    return Start(topics.firsts if starting_offsets == "earliest" else topics.ends, first=True)


def refusals_of(state: StartState) -> Iterator[Refused]:
    """All refusals that apply, in the order of the table."""
    yield from (refused for check in CHECKS if (refused := check(state)) is not None)
    if state.topics is not None and state.target.newest is not None:
        yield from _broker_refusals(state, state.topics, state.target.newest)


def _table_replaced(state: StartState) -> Refused | None:
    ledger, checkpoint = state.ledger, state.checkpoint
    sources = [("ledger", ledger.epoch, ledger.table_id), ("checkpoint", checkpoint.epoch, checkpoint.table_id)]
    source, epoch, table_id = max(sources, key=lambda each: each[1])
    if state.target.snapshot is None:
        trace = source if epoch else "quarantine" if state.quarantine.epoch else None
        return refusals.table_gone(state.name, state.target.path, trace) if trace is not None else None
    if table_id in ("", state.target.snapshot.table_id):
        return None
    return refusals.table_replaced(state.name, state.target.path, state.target.snapshot.table_id, source, table_id)


def _table_foreign(state: StartState) -> Refused | None:
    target = state.target
    ours = target.txn is not None or (target.newest is not None and target.newest.snapshots is not None)
    if target.snapshot is None or (target.other is None and (ours or target.blank)):
        return None
    return refusals.table_foreign(state.name, target.path, target.other)


def _table_rewound(state: StartState) -> Refused | None:
    target, newest, in_ledger = state.target, state.target.newest, state.ledger.newest
    epochs = {
        "the ledger": state.ledger.epoch,
        "the checkpoints' folder": state.checkpoint.epoch,
        "the quarantine": state.quarantine.epoch,
    }
    source, epoch = max(epochs.items(), key=lambda each: each[1])
    found = target.copy
    if found is None and target.replaced is not None:
        found = f"version {target.replaced.version} is a {target.replaced.operation}"
    elif found is None and target.snapshot is not None:
        if epoch > target.epoch:
            found = f"{source} has epoch {epoch}, but the table has {target.epoch or 'none'}"
        elif in_ledger is not None and (target.txn is None or in_ledger.id > target.txn):
            found = f"the ledger has batch {in_ledger.id}, but the table ends at {target.txn or 'no batch'}"
        elif newest is None and state.was_read and target.whole_log:
            found = "it has no batch, although records were read before"
        elif state.count is not None and state.count.missing:
            found = f"rows are missing ({'; '.join(state.count.missing[:3])})"
    return refusals.table_rewound(state.name, target.path, found, newest) if found is not None else None


def _quarantine_rewound(state: StartState) -> Refused | None:
    newest, quarantine = state.target.newest, state.quarantine
    if state.target.snapshot is None or newest is None:
        return None
    found = None
    if quarantine.snapshot is None:
        found = "there is no table"
    elif quarantine.replaced is not None and quarantine.replaced.rebuild is not None:
        return refusals.swap_cut_off(state.name, quarantine.path, quarantine.replaced.version)
    elif quarantine.replaced is not None:
        found = f"version {quarantine.replaced.version} is a {quarantine.replaced.operation}"
    elif quarantine.epoch < newest.id.epoch:
        found = f"it has epoch {quarantine.epoch}, but the target's newest batch is of epoch {newest.id.epoch}"
    else:
        found = quarantine.copy
    return refusals.quarantine_rewound(state.name, quarantine.path, found) if found is not None else None


def _history_gone(state: StartState) -> Refused | None:
    target = state.target
    if target.snapshot is None or target.txn is None:
        return None
    at = max(target.newest.id if target.newest is not None else NO_BATCH, target.posted, state.ledger.statement)
    unknown = state.count.unknown if state.count is not None else ()
    # A fence reads nothing. Any other transaction id implies offsets. So may a fence whose log was cleaned: a batch may precede it.
    cut_off = target.txn > at and (target.txn.number != FENCE or (target.newest is None and not target.whole_log))
    if not cut_off and not unknown:
        return None
    return refusals.history_gone(state.name, target.path, target.txn, unknown)


def _txn_retention(state: StartState) -> Refused | None:
    return refusals.txn_retention(state.name, state.retention) if state.retention else None


CHECKS: tuple[Callable[[StartState], Refused | None], ...] = (
    _txn_retention,  # first: expired transaction ids look like a table that was put back
    _table_foreign,  # before TABLE_REPLACED: a seek must not fill a foreign table
    _table_replaced,
    _table_rewound,
    _quarantine_rewound,
    _history_gone,
)


def _broker_refusals(state: StartState, topics: Numbered, newest: Newest) -> Iterator[Refused]:
    """Those of each topic that the newest epoch has read, in the order of their numbers, and of those that earlier ones have read."""
    if back := sorted(number for number in topics.states.keys() - newest.active if number < len(newest.sources)):
        yield refusals.topic_back(state.name, [topics.sources[number].name for number in back])
    for number in sorted(newest.active):
        if number in topics.states:
            yield from _of_topic(state, number, topics.states[number], of_source(newest.ends, number))
        else:  # offsets of one topic mean nothing in another
            yield topic_refused(state.name, newest.sources[number], [each.topic for each in topics.states.values()])


def _of_topic(state: StartState, number: int, broker: TopicState, ends: Mapping[int, int]) -> Iterator[Refused]:
    name, topic = state.name, broker.topic.name
    if lost := sorted(set(ends) - set(broker.bounds)):
        yield refusals.partitions_lost(name, topic, lost)
    # A partition that was added later is read from offset 0.
    needed = {p: ends.get(p, 0) for p in sorted(broker.bounds)}
    if expired := [(p, at, broker.bounds[p][0]) for p, at in needed.items() if at < broker.bounds[p][0]]:
        yield refusals.records_expired(name, topic, expired)
    if behind := [(p, at, broker.bounds[p][1]) for p, at in needed.items() if at > broker.bounds[p][1]]:
        yield refusals.broker_behind(name, topic, behind)
    lost_again = of_source(state.taken_back, number)
    if taken := {p: offsets for p, offsets in lost_again.items() if p in needed and needed[p] <= broker.bounds[p][1]}:
        yield refusals.log_truncated(name, topic, taken)
    if open_ := [(p, at, broker.decided[p]) for p, at in needed.items() if broker.decided.get(p, at) < at <= broker.bounds[p][1]]:
        yield refusals.offsets_undecided(name, topic, open_)


def topic_refused(name: str, before: TopicId, now: Sequence[TopicId]) -> Refused:
    """The refusal if none of the topics `now` is the topic `before`, which the table has read."""
    same = next((each for each in now if each.name == before.name), None)
    if same is None:
        return refusals.topic_other(name, before.name, [each.name for each in now])
    if same.comparable(before):
        return refusals.topic_recreated(name, same.name, before.id, same.id)
    return refusals.topic_elsewhere(name, same.name, before.cluster or "unknown", same.cluster or "unknown")
