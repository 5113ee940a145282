"""Mutants: bugs in the engine's pure functions and in the model's drivers. Each must break a guarantee (docs/explanation/model.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from ingest.delta.batch_commit import BatchId
from ingest.delta.posting import NOTHING, Posting
from ingest.kafka.offsets import Partition
from ingest.kafka.topic_state import TopicId
from ingest.recovery import numbering, start_state, state_reader
from ingest.recovery.decision import Decision, Start, decide
from ingest.recovery.numbering import Numbered
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


def _takes(takes: Callable[[RollBack, BatchId, Partition, int], bool]) -> Sequence[Patch]:
    return [(RollBack, "takes", takes)]


def _by_offsets(self: RollBack, id: BatchId, of: Partition, offset: int) -> bool:
    return offset >= self.earliest.get(of, offset + 1)


def _committed_too(self: RollBack, id: BatchId, of: Partition, offset: int) -> bool:
    return id >= self.newest and of in self.earliest


def _number_again() -> Sequence[Patch]:
    right = numbering.numbered

    def by_name(recorded: Sequence[TopicId], states: Any, **_: Any) -> Numbered:
        return right([replace(each, id="") for each in recorded], states)

    return [(start_state, "numbered", by_name)]


def _of_target() -> Sequence[Patch]:
    return [(StartState, "sources", property(lambda state: state.target.newest.sources if state.target.newest is not None else ()))]


def _at_its_end() -> Sequence[Patch]:
    def wrong(state: StartState, starting: Any) -> Decision:
        found = decide(state, starting)
        if not isinstance(found, Start) or state.topics is None:
            return found
        return replace(found, offsets={of: state.topics.ends[of] if of[0] in found.joins else at for of, at in found.offsets.items()})

    return [(driver, "decide", wrong)]


def _off_by_one() -> Sequence[Patch]:
    def wrong(state: Any, *more: Any, **named: Any) -> Any:
        right = plan(state, *more, **named)
        ends = {of: end for of, (_, end) in right.topics.bounds.items()}
        return replace(right, starts={of: min(start + 1, ends[of]) for of, start in right.starts.items()})

    return [(driver, "plan", wrong)]


def _deletes_all() -> Sequence[Patch]:
    def every(log: Any, version: int) -> Iterator[Any]:
        return (commit for commit in log.newest_first() if commit.operation == "DELETE" and commit.version <= version)

    return [(deletions, "deletes", every)]


def _no_write_off() -> Sequence[Patch]:
    return [(driver, "plan", lambda *more, **named: replace(plan(*more, **named), written_off=()))]


def _deleted_too() -> Sequence[Patch]:
    def wrong(counted: Account, _: object) -> list[Posting]:
        lacking = {key: each - counted.target.found.get(key, NOTHING) for key, each in counted.books.held("target").items()}
        return [Posting(key, "write-off", target=-each) for key, each in lacking.items() if each.rows > 0]

    return [(coverage, "_written_off", wrong)]


JOINED: tuple[Op, ...] = (("join",), ("produce", 0, ((3, 30, "odd"), (4, 40, "good")), 1))
GOOD: Op = ("produce", 0, ((0, 0, "good"), (1, 10, "good"), (2, 20, "good")))
MANY: Op = ("produce", 0, tuple((id, 10 * id, "good") for id in range(6)))
ODD: Op = ("produce", 0, ((3, 30, "odd"), (4, 40, "odd")))
RUN = run(0, 60)
SEEK: tuple[Op, ...] = (("kill", 0), ("seek", 1, "earliest"), run(1, 60))
# A batch is committed between the first read of a start and its fence.
BETWEEN: tuple[Op, ...] = (ODD, STRICT, until(0, "batch target at work"), until(1, "fence target next"), run(0, 1), run(1, 60))
# The quarantine has one odd record, and another one from a batch that was cut off.
CUT: tuple[Op, ...] = (ODD, STRICT, RUN, ("produce", 0, ((5, 50, "odd"),)), until(0, "batch target next"), ("kill", 0))
# The topic is recreated, and its records have the second number.
AGAIN: tuple[Op, ...] = (ODD, RUN, ("kill", 0), ("recreate", 0), ODD, STRICT, ("seek", 1, "earliest"), run(1, 60), RUN, ("kill", 0))
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
    Mutant("a recreated topic keeps its number", _number_again, begin=(GOOD, RUN, ("kill", 0), ("recreate", 0))),
    Mutant("only the target says the numbers", _of_target, begin=(*AGAIN, ("drop", 0), ("drop", 2))),
    Mutant("a topic that joins starts at its end", _at_its_end, begin=(GOOD, RUN, ("kill", 0), *JOINED)),
    Mutant("positions without their topic", mutations=Mutations(source_ignored=True), begin=(ODD, STRICT, RUN, ("kill", 0), *JOINED)),
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
