"""Bugs planted in the engine's pure functions, and in the drivers of the model: each must break a promise (docs/model.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from ingest.delta.batch_commit import BatchId
from ingest.recovery import inspect
from ingest.recovery.roll_back import RollBack
from ingest.recovery.seek_offsets import plan
from ingest.recovery.start_state import Facts
from tests.model import driver
from tests.model.driver import Planted
from tests.model.found import LAX, ROLLED_BACK, STRICT, run, until
from tests.model.world import Op

Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Bug:
    """`patches` go into the engine's functions, `planted` into the model's drivers. `begin` leads a walk near to where a rare bug shows."""

    name: str
    patches: Callable[[], Sequence[Patch]] = tuple
    planted: Planted = field(default=Planted())
    begin: tuple[Op, ...] = ()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """As long as this lasts the engine has the bug."""
        patches = [patch.object(*each) for each in self.patches()]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in patches:
                each.stop()


def _epochs_repeat() -> Sequence[Patch]:
    return [(Facts, "next_epoch", property(lambda facts: 1 + facts.target.epoch))]


def _fence_settles() -> Sequence[Patch]:
    right = inspect.replaced_since

    def since_the_fence(log: Any, version: int) -> Any:
        newest = next((each.version for each in log.newest_first() if each.mark is not None), version)
        return right(log, max(version, newest))

    return [(inspect, "replaced_since", since_the_fence)]


def _takes(takes: Callable[[RollBack, BatchId, str, int, int], bool]) -> Sequence[Patch]:
    return [(RollBack, "takes", takes)]


def _by_offsets(self: RollBack, id: BatchId, topic_id: str, partition: int, offset: int) -> bool:
    return topic_id == self.topic_id and offset >= self.earliest.get(partition, 0)


def _committed_too(self: RollBack, id: BatchId, topic_id: str, partition: int, offset: int) -> bool:
    return id >= self.newest and topic_id == self.topic_id


def _off_by_one() -> Sequence[Patch]:
    def wrong(facts: Any, *more: Any, **named: Any) -> Any:
        right = plan(facts, *more, **named)
        ends = {p: end for p, (_, end) in facts.broker.bounds.items()}
        return replace(right, starts={p: min(start + 1, ends[p]) for p, start in right.starts.items()})

    return [(driver, "plan", wrong)]


GOOD: Op = ("produce", 0, ((0, 0, "good"), (1, 10, "good"), (2, 20, "good")))
ODD: Op = ("produce", 0, ((3, 30, "odd"), (4, 40, "odd")))
RUN = run(0, 60)
SEEK: tuple[Op, ...] = (("kill", 0), ("seek", 1, "earliest"), run(1, 60))
# A batch is committed between a start's look and its fence.
BETWEEN: tuple[Op, ...] = (ODD, STRICT, until(0, "batch target at work"), until(1, "epoch target next"), run(0, 1), run(1, 60))
# One odd record is in quarantine, and another by a batch that was cut off.
CUT: tuple[Op, ...] = (ODD, STRICT, RUN, ("produce", 0, ((5, 50, "odd"),)), until(0, "batch target next"), ("kill", 0))
SOUGHT: tuple[Op, ...] = (("seek", 1, "earliest"), until(1, "seek target next"), ("kill", 1))

BUGS = (
    Bug("no fence on the quarantine", planted=Planted(quarantine_unfenced=True)),
    Bug("epochs that may repeat", _epochs_repeat, begin=(GOOD, RUN, ("kill", 0), ("drop", 0))),
    Bug("a commit taken for one's own without its writer", planted=Planted(writer_ignored=True)),
    Bug("decided before the fence", planted=Planted(looks_once=True), begin=BETWEEN),
    Bug("a fence that settles a RESTORE", _fence_settles, begin=(GOOD, RUN, until(1, "epoch target next"), ("restore", 0, 1), run(1, 60))),
    Bug("roll-back by offsets alone", lambda: _takes(_by_offsets), begin=(*CUT, *SOUGHT)),
    Bug("roll-back of a committed batch", lambda: _takes(_committed_too)),
    Bug("no roll-back", planted=Planted(no_roll_back=True), begin=(*CUT, LAX)),
    Bug("our roll-back counted as removed", planted=Planted(roll_backs_count=True), begin=ROLLED_BACK),
    Bug("no look back after a statement", planted=Planted(never_looks_back=True)),
    Bug("epoch not compared", planted=Planted(epoch_ignored=True)),
    Bug("seek off by one", _off_by_one),
    Bug("ledger before target", planted=Planted(ledger_first=True)),
    Bug("quarantine after target", planted=Planted(quarantine_last=True)),
    Bug("no replayed", planted=Planted(no_replayed=True), begin=(ODD, STRICT, RUN, LAX, *SEEK)),
    Bug("quarantine candidates not anti-joined", planted=Planted(no_anti_join=True), begin=(ODD, RUN, STRICT, *SEEK)),
)
