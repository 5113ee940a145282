"""The last batch before which none is missing (I2): on commits as a log in memory has them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ingest.stream.binding import Binding, FormerEpoch, Rebase
from ingest.stream.commit import _find
from ingest.stream.decide import LastWritten
from ingest.stream.delta_log import Commit, DeltaLog
from ingest.stream.in_force import InForce
from ingest.stream.ledger_summary import EpochBegin, LedgerSummary
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId, OffsetRange
from ingest.stream.situation import CheckpointFacts
from ingest.stream.unbroken import ANOTHER, baseline_of, last_unbroken

AT = datetime(2025, 1, 1, tzinfo=UTC)


def mark(number: int, epoch: int = 0) -> Mark:
    span = (OffsetRange(0, number * 10, number * 10 + 10),)
    return Mark("shop", "orders", BatchId(f"q{epoch}", number), epoch, "hash", "events", "T", span, ())


class Log(DeltaLog):
    """A batch's number, or an operation with its parameters, by version; `first` is the oldest that was not cleaned up."""

    def __init__(self, *commits: int | tuple[str, dict[str, Any]], epoch: int = 0, first: int = 0) -> None:
        self._commits, self._epoch, self._first = commits, epoch, first

    def versions(self) -> list[int]:
        return list(range(self._first, len(self._commits)))

    def newest(self) -> int:
        return len(self._commits) - 1

    def commit(self, version: int) -> Commit:
        what = self._commits[version]
        if not isinstance(what, int):
            return Commit(version, AT, what[0], {}, None, parameters=what[1])
        batch = mark(what, self._epoch)
        return Commit(version, AT, "MERGE", {batch.app_id("target"): what}, batch.to_json())


CREATED: tuple[str, dict[str, Any]] = ("CREATE TABLE", {})
OVERWRITTEN: tuple[str, dict[str, Any]] = ("WRITE", {"mode": "Overwrite"})
OPTIMIZED: tuple[str, dict[str, Any]] = ("OPTIMIZE", {})


def restored(version: int) -> tuple[str, dict[str, Any]]:
    return "RESTORE", {"version": str(version)}


def last(log: Log, summary: LedgerSummary = LedgerSummary(), query: str = "q0", baseline: int | None = None) -> int | None:
    found = last_unbroken(InForce(log), summary, query, baseline)
    return None if found is None else found.mark.id.number


def knows(number: int, version: int, **more: Any) -> LedgerSummary:
    return LedgerSummary(last={"q0": LastWritten(mark(number), version)}, **more)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (Log(CREATED), None),
        (Log(CREATED, 0, OPTIMIZED, 1, 2), 2),
        (Log(CREATED, 0, 1, restored(1)), 0),
        (Log(CREATED, 0, 1, restored(1), 2, 3), 0),  # 2 slipped in behind the RESTORE
        (Log(CREATED, 0, 1, restored(1), 2, restored(2)), 1),  # undone
        (Log(CREATED, 0, OVERWRITTEN, 1, 2), None),
        (Log(CREATED, OVERWRITTEN, 0, 1), 1),  # an overwrite before the first batch leaves out none
    ],
)
@pytest.mark.parametrize("ledger", [None, 0])
def test_what_follows_a_hole_does_not_count(log: Log, expected: int | None, ledger: int | None) -> None:
    assert last(log, LedgerSummary() if ledger is None else knows(0, 1)) == expected


def test_a_batch_that_the_ledger_vouches_for_and_that_is_in_force_is_whole_and_the_log_is_walked_no_further() -> None:
    log = Log(CREATED, 0, 1, 2, 3)
    chain = InForce(log)
    found = last_unbroken(chain, knows(2, 3), "q0")
    assert found == LastWritten(mark(3), 4)
    assert [commit.version for commit in chain._walked] == [4, 3]


def test_with_the_log_cleaned_up_the_ledger_vouches_for_what_is_not_in_it() -> None:
    log = Log(CREATED, 0, 1, OPTIMIZED, 2, first=3)
    assert last(log, knows(1, 2)) == 2
    assert last(log) == 2, "neither log nor ledger knows of a hole"
    assert last(Log(CREATED, 0, 1, OPTIMIZED, 3, first=3), knows(1, 2)) == 1, "2 is missing"
    for summary in (knows(1, 2), LedgerSummary()):
        assert last(Log(CREATED, 0, 1, OPTIMIZED, restored(0), 2, first=3), summary) is None, "restored to before the log"


def test_a_rebased_query_follows_on_its_baseline_and_on_nothing_else() -> None:
    log = Log(CREATED, OPTIMIZED, 1, 2, epoch=1)
    assert last(log, query="q1", baseline=1) == 2
    slipped = Log(CREATED, OPTIMIZED, restored(0), 1, epoch=1)
    assert last(slipped, query="q1", baseline=1) is None
    begins = {"q1": EpochBegin("q1", "events", "T", 1, {0: 0})}
    assert baseline_of(CheckpointFacts("checkpoint"), LedgerSummary(begins=begins), "q1", slipped) == 1
    assert last(Log(CREATED, OVERWRITTEN, 1, epoch=1), query="q1") is None, "no baseline is known, and the table begins anew"
    assert last(Log(CREATED, 1, 2, epoch=1), query="q1") == 2


def test_in_a_log_that_was_cleaned_up_in_part_what_it_still_has_and_is_not_in_force_is_a_hole() -> None:
    """A RESTORE between the last look and the MERGE: to before the rebase, or to behind it and before the ledger's last batch."""
    log = Log(CREATED, OPTIMIZED, OPTIMIZED, restored(1), 1, epoch=1, first=1)
    assert last(log, query="q1", baseline=2) is None
    assert last(log, query="q1", baseline=ANOTHER) is None
    assert last(log, query="q1", baseline=1) == last(log, query="q1", baseline=0) == 1
    log = Log(CREATED, 0, OPTIMIZED, 1, restored(2), 2, first=2)
    assert last(log, knows(1, 3)) is None
    assert last(log, knows(1, 1)) == 2, "cleaned up"
    assert last(Log(CREATED, 0, 1, 2, restored(2), OPTIMIZED, first=2), knows(2, 3)) == 1, "restored, and no hole"


def test_of_an_epoch_that_a_rebase_has_ended_nothing_behind_its_end_counts() -> None:
    """The ledger has the batch that slipped in as well: it is a projection of what is committed."""
    log = Log(CREATED, 0, 1, restored(1), 2)
    assert last(log, knows(2, 4, ended={"q0": 0})) == 0
    assert last(Log(CREATED, 0, 1, restored(1), 2, first=4), knows(2, 4, ended={"q0": 0})) is None


def test_where_a_rebase_began_is_a_commit_and_not_only_a_number() -> None:
    """I6: a copy of before it, put back and written to, has a commit of that number again; so the former one's beginning, by the ledger."""

    class Stamped(Log):
        def stamp(self, version: int) -> str:
            return {4: "its own", 5: "another"}.get(version, "")

    begins = {"q1": EpochBegin("q1", "events", "T", 4, {0: 10}), "q2": EpochBegin("q2", "events", "T", 6, {0: 10})}
    known, log = LedgerSummary(begins=begins), Stamped(CREATED)
    for version, stamp, expected in ((4, "its own", 4), (5, "its own", ANOTHER), (5, "", 5), (9, "its own", 9)):
        former = FormerEpoch("q1", 1, 3, "events", "T", (), stamp="another" if version == 4 else "its own")
        rebase = Rebase((former,), (), (), version, stamp=stamp)
        checkpoint = CheckpointFacts("checkpoint", "q2", binding=Binding("events", "T", "t", 2, ("q1",), rebase))
        assert baseline_of(checkpoint, known, "q2", log) == expected
        assert baseline_of(checkpoint, known, "q1", log) == (ANOTHER if version == 4 else 4)
        assert baseline_of(checkpoint, known, "q0", log) is None
    assert baseline_of(CheckpointFacts("checkpoint"), known, "q2", log) == 6


class OneOf(Log):
    """A log whose last commit is of another operation, with the pair and the mark of batch 1."""

    def __init__(self, operation: str) -> None:
        super().__init__(CREATED, 0, 1)
        self._operation = operation

    def commit(self, version: int) -> Commit:
        found = super().commit(version)
        return replace(found, operation=self._operation) if version == 2 else found


@pytest.mark.parametrize("after", [-1, 1])
def test_a_pair_that_another_statement_of_the_session_has_carried_is_no_commit_of_the_batch(after: int) -> None:
    """I1: pair and mark are set on the session for one statement; what else runs there meanwhile takes them along."""
    batch = mark(1)
    assert _find(OneOf("MERGE"), batch, "target", after=after) is not None
    assert _find(OneOf("OPTIMIZE"), batch, "target", after=after) is None
