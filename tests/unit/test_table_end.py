"""Where a table ends (I6): on commits as a log in memory has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ingest.stream.assessment import Assessment
from ingest.stream.binding import Binding, FormerEpoch, Rebase
from ingest.stream.decide import LastWritten
from ingest.stream.in_force import InForce
from ingest.stream.ledger_summary import EpochBegin, LedgerSummary
from ingest.stream.preflight import Start
from ingest.stream.situation import CheckpointFacts, TableFacts
from ingest.stream.table_end import TableEnd, began, table_end
from tests.unit.test_unbroken import CREATED, OPTIMIZED, Log, mark, restored

BOUND = Binding("events", "T", "id")
FORMER = FormerEpoch("q0", 0, 3, "events", "T", ((0, 40),))


def end_of(log: Log, *begins: tuple[int, int, int]) -> TableEnd:
    """The end of a table whose ledger tells of rebases: (epoch, the target's version, offset of partition 0)."""
    known = {f"q{epoch}": EpochBegin(f"q{epoch}", "events", "T", version, {0: offset}) for epoch, version, offset in begins}
    summary = LedgerSummary(epochs={f"q{epoch}": epoch for epoch, _, _ in begins}, begins=known)
    facts = CheckpointFacts("checkpoint"), TableFacts("lake/target")
    return table_end(Assessment(*facts, summary, None, Start()), InForce(log), "shop.orders")


def test_the_table_ends_where_its_last_batch_does_or_where_the_rebase_after_it_began() -> None:
    log = Log(CREATED, OPTIMIZED, 1, 2, OPTIMIZED, epoch=1)
    assert end_of(log, (1, 1, 10)).ends == {0: 30}
    assert end_of(log, (1, 1, 10), (2, 4, 25)).ends == {0: 25}
    assert end_of(Log(CREATED), (1, 0, 10)).ends == {0: 10}


def test_a_rebase_of_a_table_that_was_dropped_since_says_nothing_of_the_one_made_anew() -> None:
    """Its ledger is still there, and the new table has reached the version at which the old one's epoch began."""
    log = Log(CREATED, 1, OPTIMIZED, epoch=2)
    assert end_of(log, (1, 2, 400), (2, 0, 0)).ends == {0: 20}


@pytest.mark.parametrize(
    ("log", "version", "topic_id", "expected"),
    [
        pytest.param(Log(CREATED), 0, "T", 40, id="nothing since"),
        pytest.param(Log(CREATED, 0, restored(0)), 0, "T", 0, id="a first batch since, and left out"),
        pytest.param(Log(CREATED, 1, 2, restored(0)), 0, "T", 10, id="several since"),
        pytest.param(Log(CREATED, 5, restored(0)), 0, "T", 40, id="since, and behind it"),
        pytest.param(Log(CREATED, 0, restored(0)), 2, "T", 40, id="left out before it began: it has told of that"),
        pytest.param(Log(CREATED, 0, 1, restored(1)), 1, "T", 10, id="behind one that is in force"),
        pytest.param(Log(CREATED, 0, restored(0)), 0, "U", 40, id="of another topic"),
        pytest.param(Log(CREATED, 0, restored(0)), 0, "", 0, id="of a topic without an id"),
    ],
)
def test_an_epoch_that_no_batch_has_followed_is_no_end_before_batches_that_were_left_out_since(
    log: Log, version: int, topic_id: str, expected: int
) -> None:
    """I6: two checkpoints of one table, which know nothing of each other; the batches of the one were restored away."""
    begin = EpochBegin("q1", "events", topic_id, version, {0: 40})
    summary = LedgerSummary(epochs={"q1": 1}, begins={"q1": begin})
    facts = CheckpointFacts("checkpoint"), TableFacts("lake/target")
    assert table_end(Assessment(*facts, summary, None, Start()), InForce(log), "shop.orders").ends == {0: expected}


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        pytest.param({}, 40, id="none: it is lost"),
        pytest.param({"query_id": "q0", "binding": BOUND, "initial": {0: 7}}, 7, id="begun before"),
        pytest.param({"query_id": "q0", "binding": BOUND, "initial": {0: 90}}, 40, id="begun behind"),
        pytest.param({"query_id": "q0", "binding": BOUND}, 40, id="from where is not told"),
        pytest.param({"query_id": "q0", "binding": replace(BOUND, rebase=Rebase((), ((0, 9),), (), 1))}, 9, id="rebased itself"),
        pytest.param({"query_id": "q0", "binding": replace(BOUND, topic_id="U"), "initial": {0: 7}}, 40, id="of another topic"),
        pytest.param({"query_id": "q1", "binding": BOUND, "initial": {0: 7}}, 40, id="of that very rebase"),
        pytest.param({"query_id": "q2", "binding": replace(BOUND, predecessors=("q1",)), "initial": {0: 7}}, 40, id="of one behind it"),
    ],
)
def test_a_rebase_of_another_checkpoint_that_no_batch_has_followed_is_no_end_of_this_one(checkpoint: dict[str, Any], expected: int) -> None:
    """I6: two checkpoints of one table, begun before either had a batch; this one's batches may have been restored away since."""
    begin = EpochBegin("q1", "events", "T", 0, {0: 40})
    summary = LedgerSummary(epochs={"q1": 1}, begins={"q1": begin})
    facts = CheckpointFacts("checkpoint", **checkpoint), TableFacts("lake/target")
    assert table_end(Assessment(*facts, summary, None, Start()), InForce(Log(CREATED)), "shop.orders").ends == {0: expected}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, 0, id="a first checkpoint"),
        pytest.param({"begins": {"q0": EpochBegin("q0", "events", "T", 0, {0: 9})}}, 9, id="rebased itself"),
        pytest.param({"ended": {"q0": 0}}, 40, id="the rebase knew it"),
        pytest.param({"last": {"q0": LastWritten(replace(mark(0), topic_id="U"), 1)}}, 40, id="of another topic"),
    ],
)
def test_nor_before_where_a_query_began_that_only_the_ledger_tells_of(more: dict[str, Any], expected: int) -> None:
    """I6: the table's folder was put back from a copy, and that query's checkpoint is lost."""
    begin = EpochBegin("q1", "events", "T", 0, {0: 40})
    told = {"last": {"q0": LastWritten(mark(0), 1)}, "epochs": {"q0": 0, "q1": 1}, **more}
    summary = LedgerSummary(**{**told, "begins": {"q1": begin, **more.get("begins", {})}})
    facts = CheckpointFacts("checkpoint"), TableFacts("lake/target")
    assert table_end(Assessment(*facts, summary, None, Start()), InForce(Log(CREATED)), "shop.orders").ends == {0: expected}


def test_what_batches_in_force_have_read_is_not_read_again() -> None:
    """I4: else it would be a gap as soon as Kafka no longer holds it."""
    summary = LedgerSummary(epochs={"q1": 1}, begins={"q1": EpochBegin("q1", "events", "T", 2, {0: 40, 1: 5})})
    for query_id in ("q0", None):
        facts = CheckpointFacts("checkpoint", query_id=query_id, binding=BOUND, initial={0: 0, 1: 5}), TableFacts("lake/target")
        end = table_end(Assessment(*facts, summary, None, Start()), InForce(Log(CREATED, 0, 1)), "shop.orders")
        assert end.ends == {0: 20, 1: 5}


@pytest.mark.parametrize(
    ("checkpoint", "told"),
    [
        pytest.param({"query_id": "q0", "binding": BOUND, "initial": {0: 7}}, {}, id="by the checkpoint"),
        pytest.param(
            {},
            {"last": {"q0": LastWritten(mark(0), 1)}, "begins": {"q0": EpochBegin("q0", "events", "T", 0, {0: 7})}},
            id="by the ledger, which a rebase has told of it",
        ),
        pytest.param({}, {"last": {"q0": LastWritten(mark(0), 1)}, "first": 0}, id="by the ledger"),
    ],
)
def test_a_partition_that_another_query_was_to_read_from_its_first_record_is_read_so(
    checkpoint: dict[str, Any], told: dict[str, Any]
) -> None:
    """I6: it was added when that one had begun; in the epoch that knew nothing of it, it begins behind what that one had read."""
    first = told.pop("first", 7)
    begins = {"q1": EpochBegin("q1", "events", "T", 0, {0: 40, 1: 5}), **told.pop("begins", {})}
    summary = LedgerSummary(epochs={"q0": 0, "q1": 1}, begins=begins, **told)
    facts = CheckpointFacts("checkpoint", **checkpoint), TableFacts("lake/target")
    assert table_end(Assessment(*facts, summary, None, Start()), InForce(Log(CREATED)), "shop.orders").ends == {0: first, 1: 0}


def test_batches_of_another_table_that_were_left_out_say_nothing() -> None:
    summary = LedgerSummary(epochs={"q1": 1}, begins={"q1": EpochBegin("q1", "events", "T", 0, {0: 40})})
    facts = CheckpointFacts("checkpoint"), TableFacts("lake/target")
    log = InForce(Log(CREATED, 0, restored(0)))
    ends = {name: table_end(Assessment(*facts, summary, None, Start()), log, name).ends for name in ("shop.orders", "shop.payments")}
    assert ends == {"shop.orders": {0: 0}, "shop.payments": {0: 40}}


def test_of_a_partition_that_the_epoch_did_not_know_nothing_is_told() -> None:
    """It begins at 0 by itself."""
    summary = LedgerSummary(epochs={"q1": 1}, begins={"q1": EpochBegin("q1", "events", "T", 0, {1: 40})})
    facts = CheckpointFacts("checkpoint"), TableFacts("lake/target")
    assert table_end(Assessment(*facts, summary, None, Start()), InForce(Log(CREATED, 0, restored(0))), "shop.orders").ends == {1: 40}


def test_what_stands_behind_a_hole_does_not_count_as_read() -> None:
    """It may have counted as duplicates what the hole has taken."""
    log = Log(CREATED, 0, 1, restored(1), 2)
    facts = CheckpointFacts("checkpoint"), TableFacts("lake/target")
    end = table_end(Assessment(*facts, LedgerSummary(epochs={"q0": 0}), None, Start()), InForce(log), "shop.orders")
    assert (end.ends, end.read) == ({0: 10}, (("T", 0, 0, 10),))


def test_what_was_read_of_a_topic_that_was_made_again_since_is_no_end() -> None:
    """I6: its offsets mean nothing in the new one."""
    summary = LedgerSummary(epochs={"q1": 1}, begins={"q1": EpochBegin("q1", "events", "U", 2, {0: 40})})
    facts = CheckpointFacts("checkpoint", query_id="q2", binding=replace(BOUND, topic_id="U"), initial={0: 7}), TableFacts("lake/target")
    assert table_end(Assessment(*facts, summary, None, Start()), InForce(Log(CREATED, 0, 1)), "shop.orders").ends == {0: 7}


@pytest.mark.parametrize(
    ("checkpoint", "table", "expected"),
    [
        pytest.param({}, {}, None, id="nothing was ever read"),
        pytest.param({"initial": {0: 7}, "binding": BOUND}, {}, {0: 7}, id="killed before batch 0 was planned"),
        pytest.param({}, {"ours": True}, {}, id="only the pairs tell of batches"),
        pytest.param({"prepared": True}, {}, {}, id="only what a rebase had prepared when it was cut off tells of batches"),
        pytest.param({"committed": 3, "binding": BOUND, "initial": {0: 7}}, {}, {0: 7}, id="a checkpoint without its table"),
        pytest.param({"committed": 3, "binding": BOUND}, {}, {}, id="a checkpoint without its first offsets"),
        pytest.param({"torn": "offsets/3"}, {}, {}, id="a checkpoint without its binding"),
        pytest.param({"committed": 3, "binding": replace(BOUND, topic_id="U")}, {}, {}, id="of a topic that was deleted"),
        pytest.param({"committed": 0, "binding": replace(BOUND, rebase=Rebase((), ((0, 9),), (), 1))}, {}, {0: 9}, id="rebased at once"),
        pytest.param(
            {"committed": 0, "binding": replace(BOUND, rebase=Rebase((), ((0, 9),), (), 1))},
            {"beside": LastWritten(mark(0), 2)},
            {},
            id="rebased at once, and beside another one",
        ),
        pytest.param({"committed": 0, "binding": replace(BOUND, rebase=Rebase((FORMER,), ((0, 40),), (), 9))}, {}, {}, id="rebased later"),
        pytest.param(
            {"committed": 0, "binding": replace(BOUND, rebase=Rebase((), ((0, 9), (1, 4)), ((0, 3, 9),), 1))},
            {},
            {0: 3, 1: 4},
            id="rebased at once, over a gap that only the ledger had recorded",
        ),
    ],
)
def test_where_reading_began_is_told_by_the_checkpoint_when_table_and_ledger_are_gone(
    checkpoint: dict[str, Any], table: dict[str, Any], expected: dict[int, int] | None
) -> None:
    facts = CheckpointFacts("checkpoint", **checkpoint), TableFacts("lake/target", **table)
    assert began(*facts, "T") == expected
