"""Mutants: bugs in the engine's pure functions and in the model's drivers. Each must break a guarantee (docs/explanation/model.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from ingest.delta.batch_commit import BatchId
from ingest.delta.posting import NOTHING, Posting
from ingest.recovery import state_reader
from ingest.recovery.roll_back import RollBack
from ingest.recovery.seek_offsets import plan
from ingest.recovery.start_state import StartState
from ingest.verify import coverage, deletions
from ingest.verify.count import Account
from tests.model import driver
from tests.model.driver import Mutations
from tests.model.regressions import LAX, ROLLED_BACK, STRICT, run, until
from tests.model.world import Op

Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Mutant:
    """`patches` replace engine functions; `mutations` change the model's drivers. `begin` starts walks close to where a rare bug shows."""

    name: str
    patches: Callable[[], Sequence[Patch]] = tuple
    mutations: Mutations = field(default=Mutations())
    begin: tuple[Op, ...] = ()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The engine has the bug inside this context."""
        patches = [patch.object(*each) for each in self.patches()]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in patches:
                each.stop()


def _epochs_repeat() -> Sequence[Patch]:
    return [(StartState, "next_epoch", property(lambda state: 1 + state.target.epoch))]


def _fence_settles() -> Sequence[Patch]:
    right = state_reader.replaced_since

    def since_the_fence(log: Any, newest: Any, version: int | None) -> Any:
        fence = next((each.version for each in log.newest_first() if each.fenced), -1)
        return right(log, newest, None if version is None else max(version, fence))

    return [(state_reader, "replaced_since", since_the_fence)]


def _takes(takes: Callable[[RollBack, BatchId, str, int, int], bool]) -> Sequence[Patch]:
    return [(RollBack, "takes", takes)]


def _by_offsets(self: RollBack, id: BatchId, topic_id: str, partition: int, offset: int) -> bool:
    return topic_id == self.topic_id and offset >= self.earliest.get(partition, 0)


def _committed_too(self: RollBack, id: BatchId, topic_id: str, partition: int, offset: int) -> bool:
    return id >= self.newest and topic_id == self.topic_id


def _off_by_one() -> Sequence[Patch]:
    def wrong(state: Any, *more: Any, **named: Any) -> Any:
        right = plan(state, *more, **named)
        ends = {p: end for p, (_, end) in state.broker.bounds.items()}
        return replace(right, starts={p: min(start + 1, ends[p]) for p, start in right.starts.items()})

    return [(driver, "plan", wrong)]


def _deletes_all() -> Sequence[Patch]:
    def every(log: Any, version: int) -> Iterator[Any]:
        return (commit for commit in log.newest_first() if commit.operation == "DELETE" and commit.version <= version)

    return [(deletions, "deletes", every)]


def _no_write_off() -> Sequence[Patch]:
    return [(driver, "plan", lambda *more, **named: replace(plan(*more, **named), written_off=()))]


def _deleted_too() -> Sequence[Patch]:
    def wrong(counted: Account, _: str) -> list[Posting]:
        lacking = {key: each - counted.target.found.get(key, NOTHING) for key, each in counted.books.held("target").items()}
        return [Posting(key, "write-off", target=-each) for key, each in lacking.items() if each.rows > 0]

    return [(coverage, "_written_off", wrong)]


GOOD: Op = ("produce", 0, ((0, 0, "good"), (1, 10, "good"), (2, 20, "good")))
MANY: Op = ("produce", 0, tuple((id, 10 * id, "good") for id in range(6)))
ODD: Op = ("produce", 0, ((3, 30, "odd"), (4, 40, "odd")))
RUN = run(0, 60)
SEEK: tuple[Op, ...] = (("kill", 0), ("seek", 1, "earliest"), run(1, 60))
# A batch is committed between the first read of a start and its fence.
BETWEEN: tuple[Op, ...] = (ODD, STRICT, until(0, "batch target at work"), until(1, "fence target next"), run(0, 1), run(1, 60))
# The quarantine has one odd record, and another one from a batch that was cut off.
CUT: tuple[Op, ...] = (ODD, STRICT, RUN, ("produce", 0, ((5, 50, "odd"),)), until(0, "batch target next"), ("kill", 0))
RESTORED: tuple[Op, ...] = (GOOD, RUN, ("kill", 0), ("restore", 0, 1), *SEEK)
SOUGHT: tuple[Op, ...] = (("seek", 1, "earliest"), until(1, "seek target next"), ("kill", 1))

BUGS = (
    Mutant("no fence on the quarantine", mutations=Mutations(quarantine_unfenced=True)),
    Mutant("an epoch may repeat", _epochs_repeat, begin=(GOOD, RUN, ("kill", 0), ("drop", 0))),
    Mutant("another writer's commit mistaken for our own", mutations=Mutations(writer_ignored=True)),
    Mutant("decided before the fence", mutations=Mutations(looks_once=True), begin=BETWEEN),
    Mutant("a fence settles a RESTORE", _fence_settles, begin=(GOOD, RUN, until(1, "fence target next"), ("restore", 0, 1), run(1, 60))),
    Mutant("roll-back by offsets alone", lambda: _takes(_by_offsets), begin=(*CUT, *SOUGHT)),
    Mutant("roll-back of a committed batch", lambda: _takes(_committed_too)),
    Mutant("no roll-back", mutations=Mutations(no_roll_back=True), begin=(*CUT, LAX)),
    Mutant("our roll-back counted as a foreign DELETE", _deletes_all, begin=ROLLED_BACK),
    Mutant("a posting without its removal", mutations=Mutations(posted_unremoved=True), begin=(GOOD, RUN, ("kill", 0), ("erase", 0))),
    Mutant("a removal without its posting", mutations=Mutations(removed_unposted=True), begin=(GOOD, RUN, ("kill", 0), ("erase", 0))),
    Mutant("a record passed over is booked as there before", mutations=Mutations(passed_over=True)),
    Mutant("nobody says what Spark's writer added", mutations=Mutations(unsaid=True)),
    Mutant(
        "what Spark's writer added is said twice",
        mutations=Mutations(told_twice=True),
        begin=(MANY, ("go", 0, 40), ("stop", 0), ("go", 1, 9)),
    ),
    Mutant("write-off forgotten", _no_write_off, begin=RESTORED),
    Mutant("write-off of what a DELETE took", _deleted_too, begin=(GOOD, RUN, ("kill", 0), ("delete", 0), *SEEK)),
    Mutant("no look back after a statement", mutations=Mutations(never_looks_back=True)),
    Mutant("epoch not compared", mutations=Mutations(epoch_ignored=True)),
    Mutant("seek off by one", _off_by_one),
    Mutant("ledger before target", mutations=Mutations(ledger_first=True)),
    Mutant("quarantine after target", mutations=Mutations(quarantine_last=True)),
    Mutant("no record becomes replayed", mutations=Mutations(no_replayed=True), begin=(ODD, STRICT, RUN, LAX, *SEEK)),
    Mutant("quarantine candidates not anti-joined", mutations=Mutations(no_anti_join=True), begin=(ODD, RUN, STRICT, *SEEK)),
)
