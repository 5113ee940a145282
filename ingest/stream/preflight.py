"""Preflight: whether a run may start, and where, from what checkpoint, table and broker say (I2, I6, I8). Pure.

The rows of the table in docs/contract.md, in their order: of several refusals the upper one is reported, and any refusal
wins over start, run, resume and skip. Nothing here reads a file or asks a broker: ingest/stream/facts.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ingest.errors import Refused
from ingest.stream import refusals
from ingest.stream.binding import Binding
from ingest.stream.decide import joins, one_topic
from ingest.stream.offsets import OffsetRange
from ingest.stream.situation import BrokerFacts, CheckpointFacts, TableFacts


@dataclass(frozen=True)
class Start:
    """A new checkpoint begins."""


@dataclass(frozen=True)
class Run:
    """Batch `number` was planned and is not in the table: it is run."""

    number: int


@dataclass(frozen=True)
class Resume:
    """Batch `number` is the next to be planned."""

    number: int


@dataclass(frozen=True)
class Skip:
    """Batch `number` is in the table, proven by version `version`, and not yet in Spark's commit log."""

    number: int
    version: int


@dataclass(frozen=True)
class Refuse:
    """Nothing may start."""

    error: Refused


Decision = Start | Run | Resume | Skip | Refuse


def decide(table_name: str, checkpoint: CheckpointFacts, table: TableFacts, broker: BrokerFacts | None) -> Decision:
    """What a start of `table_name` (`pipeline.table`) has to do. Without `broker` its rows are left out."""
    known = _Known(table_name, checkpoint, table, broker)
    if (refused := next(refusals_of(table_name, checkpoint, table, broker), None)) is not None:
        return Refuse(refused)
    planned = checkpoint.planned
    if planned is None:
        return Start()
    if checkpoint.committed == planned.id.number:
        return Resume(planned.id.number + 1)
    if known.written == planned.id.number:
        assert table.last is not None
        return Skip(planned.id.number, table.last.version)
    return Run(planned.id.number)


def refusals_of(table_name: str, checkpoint: CheckpointFacts, table: TableFacts, broker: BrokerFacts | None) -> Iterator[Refused]:
    """All refusals that hold, the upper ones first."""
    known = _Known(table_name, checkpoint, table, broker)
    yield from (refused for row in ROWS if (refused := row(known)) is not None)
    if broker is not None:
        yield from _broker_refusals(known, broker)


@dataclass(frozen=True)
class _Known:
    name: str
    checkpoint: CheckpointFacts
    table: TableFacts
    broker: BrokerFacts | None

    @property
    def written(self) -> int:
        """T: the last batch of this query whose target commit is in force; a rebase's baseline counts as batch 0."""
        return self.table.last.mark.id.number if self.table.last is not None else 0 if self.rebased and self.table.baseline else -1

    @property
    def rebased(self) -> bool:
        """Whether the checkpoint begins with a baseline, which is there with its commit or not at all."""
        return self.checkpoint.binding is not None and self.checkpoint.binding.rebase is not None

    @property
    def planned(self) -> int:
        """N."""
        return -1 if self.checkpoint.planned is None else self.checkpoint.planned.id.number


def _checkpoint_lost(known: _Known) -> Refused | None:
    # A ledger by itself counts too: it says what was read or jumped over, and new batches would not add up with those that it has.
    # So does a rebase that was cut off: where table and ledger are gone as well, nothing else tells that there was anything.
    checkpoint, table = known.checkpoint, known.table
    by: refusals.Teller | None = "table" if table.ours else "ledger" if table.recorded else "rebase" if checkpoint.prepared else None
    return refusals.checkpoint_lost(known.name, checkpoint.path, table.path, by) if checkpoint.empty and by is not None else None


def _table_foreign(known: _Known) -> Refused | None:
    table = known.table
    foreign = table.id is not None and not table.ours and not table.blank and table.stranger is None
    return refusals.table_foreign(known.name, table.path) if foreign else None


def _table_owned(known: _Known) -> Refused | None:
    other = known.table.stranger
    if other is None:
        return None
    former = known.checkpoint.binding.predecessors if known.checkpoint.binding else ()
    if other.pipeline == known.name and (known.checkpoint.query_id is None or other.query_id in former):
        return None
    return refusals.table_owned(known.name, known.table.path, other.version, other.pipeline, other.query_id, known.checkpoint.query_id)


def _table_replaced(known: _Known) -> Refused | None:
    binding, table = known.checkpoint.binding, known.table
    if binding is None or not binding.table_id or table.id in (None, binding.table_id):
        return None
    return refusals.table_replaced(known.name, table.path, table.id or "", binding.table_id)


def _checkpoint_old(known: _Known) -> Refused | None:
    planned, last = known.checkpoint.planned, known.table.last
    if planned is None or last is None:
        return None
    # The offset log has no topic id; the one that the checkpoint is bound to stands for it.
    binding = known.checkpoint.binding
    topic = binding is None or one_topic(binding.topic_id, last.mark.topic_id)
    same = topic and last.mark.ranges == planned.ranges
    # A batch that is to be run begins where the table ends, whatever the offset log says of the batch before.
    to_run = known.checkpoint.committed < planned.id.number == known.written + 1
    apart = to_run and not (topic and joins(planned.ranges, last.mark))
    if known.written > planned.id.number or (known.written == planned.id.number and not same) or apart:
        return refusals.checkpoint_old(
            known.name, known.checkpoint.path, planned, last, "" if topic or binding is None else binding.topic_id
        )
    return None


def _table_rewound(known: _Known) -> Refused | None:
    if known.checkpoint.torn is not None and known.checkpoint.query_id is None:
        return None  # whose batches to look for is not known
    pair = known.table.pair
    if pair is not None and not known.table.pair_known:
        return None  # HISTORY_GONE says it
    # Delta would skip every batch up to its pair, also those that a RESTORE has taken away. And the ledger never leads: where it does,
    # copies of table and checkpoint were put back, and other batches would get the numbers of those that it has.
    proofs = {"checkpoint": known.checkpoint.committed, "pair": -1 if pair is None else pair, "ledger": known.table.ledgered}
    by, done = max(proofs.items(), key=lambda proof: proof[1])
    if known.written >= done:
        return None
    return refusals.table_rewound(known.name, known.table.path, by, done, known.table.last, known.table.left_out)


def _restored_beside(known: _Known) -> Refused | None:
    if (beside := known.table.beside) is None:
        return None
    return refusals.restored_beside(known.name, known.table.path, beside)


def _checkpoint_torn(known: _Known) -> Refused | None:
    checkpoint = known.checkpoint
    torn = checkpoint.torn
    if torn is None and checkpoint.committed > known.planned:
        torn = f"offsets/{checkpoint.committed}"
    if torn is None and checkpoint.committed < max(known.planned - 1, 0 if known.rebased else -1):
        torn = f"commits/{max(known.planned - 1, 0)}"
    return refusals.checkpoint_torn(f"{checkpoint.path}/{torn}", known.name) if torn is not None else None


def _quarantine_rewound(known: _Known) -> Refused | None:
    table = known.table
    if table.quarantine_lost is None:
        return None
    return refusals.quarantine_rewound(known.name, table.quarantine, table.quarantine_lost.what)


def _history_gone(known: _Known) -> Refused | None:
    table = known.table
    if table.pair is None or table.pair_known:
        return None
    return refusals.history_gone(known.name, table.path, table.pair)


def _txn_retention(known: _Known) -> Refused | None:
    return refusals.txn_retention(known.name, known.table.retention) if known.table.retention else None


ROWS: tuple[Callable[[_Known], Refused | None], ...] = (
    _checkpoint_lost,
    _table_foreign,
    _table_owned,
    _table_replaced,
    _checkpoint_old,
    _table_rewound,
    _restored_beside,
    _checkpoint_torn,
    _quarantine_rewound,
    _history_gone,
    _txn_retention,
)


def _broker_refusals(known: _Known, broker: BrokerFacts) -> Iterator[Refused]:
    binding, planned = known.checkpoint.binding, known.checkpoint.planned
    if binding is not None and binding.topic != broker.topic:
        yield refusals.topic_other(known.name, binding.topic, broker.topic)
    if binding is not None and binding.topic_id and broker.topic_id and binding.topic_id != broker.topic_id:
        yield refusals.topic_recreated(known.name, broker.topic, binding.topic_id, broker.topic_id)
        return  # offsets of the one mean nothing in the other
    if binding is not None and _of_another_cluster(binding, broker):
        yield refusals.topic_elsewhere(known.name, broker.topic, binding.cluster or "unknown", broker.cluster or "unknown")
        return
    ranges = planned.ranges if planned is not None else ()
    if known.checkpoint.empty and known.checkpoint.initial is not None:  # Spark was killed when it had fixed where batch 0 begins
        ranges = tuple(OffsetRange(p, offset, offset) for p, offset in sorted(known.checkpoint.initial.items()))
    if not ranges:
        return
    done = planned is not None and planned.id.number in (known.checkpoint.committed, known.written)
    needed = {each.partition: each.end if done else each.start for each in ranges}
    if lost := sorted(set(needed) - set(broker.bounds)):
        yield refusals.partitions_lost(known.name, broker.topic, lost)
    for partition in broker.bounds:
        needed.setdefault(partition, 0)  # a partition added later is read from its beginning
    expired = [(p, needed[p], earliest) for p, (earliest, _) in sorted(broker.bounds.items()) if earliest > needed[p]]
    if expired:
        yield refusals.records_expired(known.name, broker.topic, expired)
    behind = [(each.partition, each.end, broker.bounds[each.partition][1]) for each in ranges if each.partition in broker.bounds]
    behind = [each for each in behind if each[1] > each[2]]
    if behind:
        yield refusals.broker_behind(known.name, broker.topic, behind)
    if done or planned is None:  # else the batch at hand is ended first, at the level that it began with
        open_ = [(p, needed[p], end) for p, end in sorted(broker.decided.items()) if end < needed[p] <= broker.bounds[p][1]]
        if open_:
            yield refusals.offsets_undecided(known.name, broker.topic, open_)


def _of_another_cluster(binding: Binding, broker: BrokerFacts) -> bool:
    """Where the ids of the two topics cannot be compared, those of the clusters tell: an upgraded cluster keeps its own."""
    if binding.topic_id and broker.topic_id:
        return False
    if binding.cluster and broker.cluster:
        return binding.cluster != broker.cluster
    return bool(binding.topic_id)  # brokers that once told ids go on to do so; another cluster's may never have
