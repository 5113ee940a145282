"""The decision of a start: continue, and at which offsets, or refuse. The table of docs/reference/errors.md, in its order (I2, I6).

Pure: no Spark, no files, no broker. The first of several refusals is reported. The checkpoints never decide where a start continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ingest.delta.batch_commit import FENCE, NO_BATCH
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.ledger_reader import Newest
from ingest.recovery import refusals
from ingest.recovery.start_state import StartState
from ingest.runtime.errors import Refused


@dataclass(frozen=True)
class Create:
    """There is no table, and no trace of a former one."""


@dataclass(frozen=True)
class Start:
    """Start at these offsets. `first`: nothing was read before, and the offsets are the contract's `starting_offsets` as of now."""

    offsets: Mapping[int, int]
    first: bool = False


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
    newest = state.target.newest
    if newest is not None:
        partitions = set(newest.ends) | set(state.broker.bounds if state.broker is not None else ())
        return Start({p: newest.ends.get(p, 0) for p in sorted(partitions)})
    broker = state.broker
    if broker is None:
        return Start({}, first=True)
    begin = {p: first for p, (first, _) in broker.bounds.items()} if starting_offsets == "earliest" else broker.ends()
    return Start(begin, first=True)


def refusals_of(state: StartState) -> Iterator[Refused]:
    """All refusals that apply, in the order of the table."""
    yield from (refused for check in CHECKS if (refused := check(state)) is not None)
    if state.broker is not None and state.target.newest is not None:
        yield from _broker_refusals(state, state.broker, state.target.newest)


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
    elif newest.snapshots is not None:
        then = newest.snapshots.quarantine
        if then.table_id != quarantine.snapshot.table_id:
            found = f"its table id is {quarantine.snapshot.table_id}, but was {then.table_id}"
        elif then.version > quarantine.snapshot.version or quarantine.stamp_then not in ("", then.stamp):
            found = f"it is a copy: its version {then.version} is missing, or differs from the one that the target's newest batch recorded"
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


def _broker_refusals(state: StartState, broker: TopicState, newest: Newest) -> Iterator[Refused]:
    name, ends = state.name, newest.ends
    if (other := topic_refused(name, broker.topic, newest.topic)) is not None:
        yield other  # offsets of one topic mean nothing in another
        return
    if lost := sorted(set(ends) - set(broker.bounds)):
        yield refusals.partitions_lost(name, broker.topic.name, lost)
    # A partition that was added later is read from offset 0.
    needed = {p: ends.get(p, 0) for p in sorted(broker.bounds)}
    if expired := [(p, at, broker.bounds[p][0]) for p, at in needed.items() if at < broker.bounds[p][0]]:
        yield refusals.records_expired(name, broker.topic.name, expired)
    if behind := [(p, at, broker.bounds[p][1]) for p, at in needed.items() if at > broker.bounds[p][1]]:
        yield refusals.broker_behind(name, broker.topic.name, behind)
    if taken := {p: offsets for p, offsets in state.taken_back.items() if p in needed and needed[p] <= broker.bounds[p][1]}:
        yield refusals.log_truncated(name, broker.topic.name, taken)
    if open_ := [(p, at, broker.decided[p]) for p, at in needed.items() if broker.decided.get(p, at) < at <= broker.bounds[p][1]]:
        yield refusals.offsets_undecided(name, broker.topic.name, open_)


def topic_refused(name: str, now: TopicId, before: TopicId) -> Refused | None:
    """The refusal if offsets of the topic `before` mean nothing in the topic `now`; None if both are the same topic."""
    if now.name != before.name:
        return refusals.topic_other(name, before.name, now.name)
    if now.id and before.id:
        return refusals.topic_recreated(name, now.name, before.id, now.id) if now.id != before.id else None
    # Brokers before Kafka 2.8 have no topic ids, so the cluster ids are compared.
    another = now.cluster != before.cluster if now.cluster and before.cluster else bool(before.id)
    return refusals.topic_elsewhere(name, now.name, before.cluster or "unknown", now.cluster or "unknown") if another else None
