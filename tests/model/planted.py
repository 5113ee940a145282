"""Bugs planted in the engine's decisions, and in the parts of a batch that the model plays: each must be found by a walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.stream import batch, commit, facts, in_force, ledger, mark, opening, preflight, quarantine_loss, rebase, rebase_plan
from ingest.stream.decide import LastWritten, Skip, Write, decide
from ingest.stream.mark import Mark
from tests.model.patched import Patch, patched
from tests.model.world import Op, Planted


@dataclass(frozen=True)
class Bug:
    """`patches` go into the engine's modules, `planted` into the model's drivers. `begin` leads a walk near to where a rare bug shows:
    from nothing it takes thousands of walks."""

    name: str
    patches: Callable[[], Sequence[Patch]] = tuple
    planted: Planted = field(default=Planted())
    begin: tuple[Op, ...] = ()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """As long as this lasts the engine has the bug."""
        with patched(self.patches()):
            yield


def _without(*names: str) -> Sequence[Patch]:
    """Preflight without these rows."""
    return [(preflight, "ROWS", tuple(row for row in preflight.ROWS if row.__name__ not in names))]


def _ranges_not_compared() -> Sequence[Patch]:
    def careless(planned: Mark, last: LastWritten | None) -> Write | Skip:
        if last is not None and last.mark.id.number == planned.id.number:
            return Skip(last.mark, last.version)
        return decide(planned, last)

    def find(log: Any, planned: Mark, statement: Any, *, after: int) -> Any:
        each = (c for c in log.newest_first() if c.version > after and c.transactions.get(planned.app_id(statement)) == planned.id.number)
        return next(each, None)

    return [*_without("_checkpoint_old"), (batch, "decide", careless), (commit, "_find", find)]


def _restore_ignored() -> Sequence[Patch]:
    before = in_force.InForce._former

    def former(self: Any, commit: Any) -> int:
        return int(commit.version) - 1 if commit.operation == "RESTORE" else before(self, commit)

    return [(in_force.InForce, "_former", former), (ledger, "leaves_out", lambda _: False)]


def _planned(change: Callable[[Any], Any]) -> Sequence[Patch]:
    """A rebase whose plan is changed before it is carried out."""
    right = rebase_plan.plan

    def plan(*arguments: Any, **more: Any) -> Any:
        planned = right(*arguments, **more)
        return replace(planned, binding=replace(planned.binding, rebase=change(planned.rebase)))

    return [(rebase, "plan", plan)]


def _topic_id_not_compared() -> Sequence[Patch]:
    right = preflight.decide

    def careless(name: str, checkpoint: Any, table: Any, broker: Any) -> Any:
        bound = checkpoint.binding.topic_id if checkpoint.binding is not None else broker.topic_id
        return right(name, checkpoint, table, replace(broker, topic_id=bound))

    return [(preflight, "decide", careless)]


def _one_app_id() -> Sequence[Patch]:
    def app_id(pipeline: str, table: str, _: str, statement: str) -> str:
        return f"oncelake/{pipeline}/{table}/{statement}"

    return [(module, "app_id", app_id) for module in (mark, facts, quarantine_loss)]


def _no_pair() -> Sequence[Patch]:
    @contextmanager
    def pair(session: Any, planned: Mark, _: Any) -> Iterator[None]:
        session.conf.set(commit.METADATA, planned.to_json())
        yield
        session.conf.unset(commit.METADATA)

    return [(commit, "_pair", pair)]


def _contract_of_today() -> Sequence[Patch]:
    def begun(table: Any, planned: Any) -> Any:
        newest = table.ledger.quarantine_mark()
        return newest if newest is not None and newest.id == planned.id else None

    return [(opening.Opening, "unfinished_contract", lambda _: None), (batch, "_begun", begun)]


def _projected_again() -> Sequence[Patch]:
    right = ledger.Ledger.append

    def append(self: Any, session: Any) -> int:
        pending = list(self._pending)
        rows = right(self, session)
        self._pending.extend(pending)
        return rows

    return [(ledger.Ledger, "append", append)]


def _no_expiry() -> Sequence[Patch]:
    right = preflight._broker_refusals
    return [(preflight, "_broker_refusals", lambda *known: (r for r in right(*known) if r.code != "RECORDS_EXPIRED"))]


def _go(steps: int) -> Op:
    return ("go", 0, 0, False, steps, 0, ())


GOOD: Op = ("produce", 0, ((0, 0, "good"),))
BACKED_UP: tuple[Op, ...] = (GOOD, _go(12), ("save", 0), GOOD, _go(12), ("kill", 0))
QUARANTINED: tuple[Op, ...] = (("produce", 0, ((0, 0, "poison"), (1, 10, "good"))), _go(12), ("kill", 0))
UNFINISHED: tuple[Op, ...] = (("produce", 0, ((0, 0, "poison"), (1, 10, "odd"))), _go(5), ("kill", 0))
# The row has the greater position; from the earliest on both copies meet in one batch.
COPIES: tuple[Op, ...] = (("produce", 1, ((1, 10, "good"),)), _go(12), ("produce", 0, ((1, 11, "good"),)), _go(12), ("stop", 0))
READ_AGAIN: tuple[Op, ...] = (*COPIES, ("rebase", 0, "earliest", False, (), 0, ()))

BUGS = (
    Bug("a skip without comparing ranges", _ranges_not_compared, begin=BACKED_UP),
    Bug("RESTORE ignored", _restore_ignored),
    Bug("quarantine after the target", planted=Planted(quarantine_last=True)),
    Bug("offsets taken from the data", planted=Planted(offsets_from_data=True)),
    Bug("no dedup inside the batch", planted=Planted(no_dedup=True)),
    Bug("decided once for a batch", planted=Planted(decides_once=True)),
    Bug("rebase off by one", lambda: _planned(lambda r: replace(r, baseline=tuple((p, offset + 1) for p, offset in r.baseline)))),
    Bug("what stands is not looked at", lambda: [(ledger.Ledger, "read_before", lambda *_: False)], begin=READ_AGAIN),
    Bug("a batch projected again", _projected_again),
    Bug("a gap not recorded", lambda: _planned(lambda r: replace(r, gaps=()))),
    Bug("a topic made again under a batch", planted=Planted(topic_asked_once=True)),
    Bug("topic id not compared", _topic_id_not_compared),
    Bug("app id not tied to the checkpoint", _one_app_id),
    Bug("no pair", _no_pair),
    Bug("the unfinished batch under today's contract", _contract_of_today, begin=UNFINISHED),
    Bug("expired records not noticed", _no_expiry),
    Bug("without TABLE_REWOUND", lambda: _without("_table_rewound")),
    Bug("without CHECKPOINT_TORN", lambda: _without("_checkpoint_torn")),
    Bug("without QUARANTINE_REWOUND", lambda: _without("_quarantine_rewound"), begin=QUARANTINED),
    Bug("without TABLE_OWNED", lambda: _without("_table_owned")),
)
