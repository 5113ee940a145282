"""How the oracle judges later epochs: seeks and their gaps, epoch rows in the ledger, re-reads, and rollbacks of the quarantine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.unit.lab.oracle_scene import AGAIN, SECOND, TOPIC_ID, Rows, Scene, Statement, batch, fence, less, quarantined, row, seek, sums_of

C = frozenset({("C",)})
D_AGAIN = batch(AGAIN, {0: [6, 9], 1: [3, 3]}, [row((0, 8), "D", AGAIN)])


@pytest.fixture
def over(good: Scene) -> Scene:
    """C has expired, and a seek starts after it. Target versions: 3 the fence, 4 the seek, 5 its batch."""
    good.begin[0] = 6
    good.target[3:] = [fence(2), seek(2, {0: 6, 1: 3}, gaps={0: [[5, 6]]}), replace(D_AGAIN)]
    good.quarantine.append(fence(2))
    good.book()
    return good


def test_an_accepted_gap_that_the_ledger_records_is_clean(over: Scene, tmp_path: Path) -> None:
    verdict = over.judge(tmp_path, excused_ids=C)
    verdict.assert_clean()
    assert verdict.notes == ("orders: the payload of 2 rows cannot be compared, Kafka does not show their records",)
    lost = "orders: id ('C',) was committed, is no longer in Kafka and is neither in target nor in quarantine (a)"
    assert over.ask(tmp_path).findings == (lost,)


Change = Callable[[Scene], object]
WRONG: dict[str, tuple[Change, str]] = {
    "no gap is accepted": (
        lambda scene: scene.target[4].alter(gaps={}),
        "partition 0 offsets [5, 6) were read by no batch, and no gap is accepted (a)",
    ),
    "a gap over offsets that were read": (lambda scene: scene.target[4].gaps.update({0: [[4, 6]]}), "and version 2 has read [0, 5) (f)"),
    "a gap after the start": (lambda scene: scene.target[4].gaps.update({0: [[5, 7]]}), "[5, 7) in partition 0, and begins at 6 (f)"),
    "the seek starts one offset late": (lambda scene: scene.target[4].starts.update({0: 7}), "expected to start at 7 (f)"),
    "the seek adds a row": (
        lambda scene: scene.target[4].rows.append(row((0, 8), "D", (2, 1))),
        "(WRITE) changes epoch 2 batch 1 in source 0 partition 0",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_in_a_seek_is_found(over: Scene, tmp_path: Path, name: str) -> None:
    change, expected = WRONG[name]
    change(over)
    found = over.judge(tmp_path, excused_ids=C).findings
    assert any(expected in each for each in found), found


@pytest.mark.parametrize("number", [AGAIN, (3, 2)])
def test_an_epoch_without_a_seek_starts_at_the_tables_end_offsets(good: Scene, tmp_path: Path, number: tuple[int, int]) -> None:
    """Epoch 2 may have written its fence and nothing else."""
    epoch = number[0]
    good.target += [*map(fence, range(2, epoch + 1)), batch(number, {0: [9, 9], 1: [3, 3], 2: [0, 0]})]
    good.quarantine += map(fence, range(2, epoch + 1))
    good.judge(tmp_path).assert_clean()


def re_read(scene: Scene) -> None:
    """A seek to the earliest offsets, whose batch adds no rows."""
    snapshots = {"target": 4, "quarantine": 2}
    scene.target += [fence(2), seek(2, {0: 0, 1: 0}, snapshots=snapshots), batch(AGAIN, {0: [0, 9], 1: [0, 3]})]
    scene.quarantine.append(fence(2))


def test_a_re_read_that_adds_no_row_is_clean(good: Scene, tmp_path: Path) -> None:
    re_read(good)
    good.judge(tmp_path).assert_clean()


def test_a_duplicate_row_that_a_re_read_adds_is_found(good: Scene, tmp_path: Path) -> None:
    re_read(good)
    good.target[-1].rows.append(row((0, 1), "B", AGAIN))
    found = good.judge(tmp_path).findings
    assert (
        "orders: id ('B',) is in the target 2 times (a)" in found and "orders: partition 0 offset 1 is in the target 2 times (b)" in found
    )


@pytest.fixture
def killed(good: Scene) -> Scene:
    """Batch 3 was killed after it put its poison into quarantine. Epoch 2 rolls that back and re-reads the range."""
    good.kafka[0, 7] = b"{"
    again = {0: [5, 9], 1: [3, 3]}
    good.target[3:] = [fence(2), batch(AGAIN, again, [row((0, 5), "C", AGAIN), row((0, 8), "D", AGAIN)])]
    good.quarantine += [
        batch(SECOND, {}, [quarantined((0, 7), SECOND)]),
        fence(2),
        Statement("rollback", 2, 1, where="epoch < 2 AND epoch = 1 AND batch > 2 AND partition = 0 AND offset >= 5"),
        batch(AGAIN, {}, [quarantined((0, 7), AGAIN)]),
    ]
    return good.book()


def test_a_killed_batch_that_is_rolled_back_and_re_read_is_clean(killed: Scene, tmp_path: Path) -> None:
    killed.judge(tmp_path).assert_clean()


def without_rollback(scene: Scene) -> None:
    """Without the rollback, the MERGE on the position adds nothing."""
    del scene.quarantine[-2:]
    scene.book(scene.target[4])


NOT_ROLLED_BACK: dict[str, tuple[Change, str]] = {
    "no rollback": (
        without_rollback,
        "offset 7: the quarantine names epoch 1 batch 3, and no target commit of that is in the log; epoch 2 reads it again",
    ),
    "a committed batch is rolled back": (
        lambda scene: scene.quarantine[-2].alter(where="epoch < 2"),
        "quarantine version 4 (rollback) changes epoch 1 batch 2 in source 0 partition 0 from 1 to 0 rows",
    ),
    "a foreign DELETE": (lambda scene: scene.quarantine[-2].alter(app_id=None), "quarantine version 4 (DELETE) removes or changes rows"),
    "a DELETE of another kind": (
        lambda scene: scene.quarantine[-2].alter(metadata={"kind": "state"}),
        "quarantine version 4 (DELETE) removes or changes rows",
    ),
    "no later epoch starts": (
        lambda scene: ([scene.target.pop() for _ in range(2)], [scene.quarantine.pop() for _ in range(3)]),
        "offset 7: the quarantine names epoch 1 batch 3, and no target commit of that is in the log, and no later epoch has started (g)",
    ),
    "a record is stored again for the old batch": (
        lambda scene: scene.quarantine[-1].rows[0].update(epoch=1, batch=3),
        "quarantine version 5 (batch) changes epoch 1 batch 3 in source 0 partition 0 from 0 to 1 rows",
    ),
}


@pytest.mark.parametrize("name", NOT_ROLLED_BACK)
def test_a_wrong_rollback_is_found(killed: Scene, tmp_path: Path, name: str) -> None:
    change, expected = NOT_ROLLED_BACK[name]
    change(killed)
    found = killed.judge(tmp_path).findings
    assert any(expected in each for each in found), found


@pytest.mark.parametrize("left", ["behind a gap", "of another topic"])
def test_leftovers_of_a_killed_batch_that_cannot_be_re_read_are_accepted(killed: Scene, tmp_path: Path, left: str) -> None:
    """The records before offset 8 have expired before epoch 2 starts there, or the topic was recreated."""
    former = killed.view()
    del killed.quarantine[-2:]
    if left == "behind a gap":
        killed.begin[0] = 8
        later_seek = seek(2, {0: 8, 1: 3}, gaps={0: [[5, 8]]})
        read = batch(AGAIN, {0: [8, 9], 1: [3, 3]}, [row((0, 8), "D", AGAIN)])
    else:
        other = "5f0c1b1e-3f0a-4f0e-9b7d-6a0c6f8a9c11"
        shown = {place: record for place, record in former.records.items() if place[1] < 5 or place == (0, 7)}
        former = replace(former, records=shown)
        for each in killed.quarantine:
            each.rows = [kept | {"value": killed.kafka[kept["partition"], kept["offset"]]} for kept in each.rows]
        killed.kafka, killed.topic_id = {}, other
        later_seek = seek(2, {0: 0, 1: 0}, sources=(TOPIC_ID, other), source=1)
        read = batch(AGAIN, {0: [0, 0], 1: [0, 0]}, sources=(TOPIC_ID, other), source=1)
    killed.target[4:] = [later_seek, read]
    gone = frozenset({("C",), ("D",)})
    killed.judge(tmp_path, excused_ids=gone, former=() if left == "behind a gap" else (former,)).assert_clean()


def replayed(scene: Scene, where: str) -> Statement:
    """A seek re-reads a record that the contract refused, and its batch makes it a row."""
    scene.target[3].rows.pop()
    scene.quarantine.append(batch(SECOND, {}, [quarantined((0, 8), SECOND)]))
    scene.book(scene.target[3])
    re_read(scene)
    scene.target[-1].rows.append(row((0, 8), "D", AGAIN))
    scene.target[-2].snapshots["quarantine"] = 3
    return Statement("mark", *AGAIN, where=where)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("offset = 8", None),
        ("offset = 80", "offset 8: id ('D',) is in the target and, open, in the quarantine (b)"),
        ("offset >= 2", "offset 2: no id can be read from the record, and it is not in the quarantine: dropped (b)"),
    ],
)
def test_a_quarantined_record_that_a_re_read_makes_a_row_must_be_marked_as_replayed(
    good: Scene, tmp_path: Path, where: str, expected: str | None
) -> None:
    good.quarantine.append(replayed(good, where))
    found = good.judge(tmp_path, valid_in_quarantine=True).findings
    assert any(expected in each for each in found) if expected else found == (), found


def restored(scene: Scene, lake: Path) -> dict[str, Any]:
    """RESTORE the target to the version before batch 3. Returns the arguments that report it to the oracle."""
    scene.write(lake)
    DeltaTable(str(lake / "shop/orders/target")).restore(2)
    return {"own_versions": frozenset({4})}


def seek_after_restore(scene: Scene, lake: Path, start: int, rows: Rows) -> None:
    """After the RESTORE, a seek to this offset and its batch."""
    off = {
        "write-off": [[*SECOND, 0, 0, *[None] * 3, 0, 0, 0, *less(sums_of([row((0, 5), "C", SECOND), row((0, 8), "D", SECOND)])), 0, 0, 0]]
    }
    scene.target = [fence(2), seek(2, {0: start, 1: 3}, snapshots={"target": 4}, more=off), batch(AGAIN, {0: [start, 9], 1: [3, 3]}, rows)]
    scene.quarantine = [fence(2)]
    scene.write(lake)


def test_rows_that_a_restore_removed_and_a_later_epoch_re_reads_are_clean(good: Scene, tmp_path: Path) -> None:
    reported = restored(good, tmp_path)
    seek_after_restore(good, tmp_path, 5, [row((0, 5), "C", AGAIN), row((0, 8), "D", AGAIN)])
    good.ask(tmp_path, **reported).assert_clean()
    without = good.ask(tmp_path).findings
    assert without == ("orders: target version 4 (RESTORE) removes or changes rows, but it is not a commit of the test (e)",)


def test_a_seek_after_a_restore_that_starts_too_late_is_found(good: Scene, tmp_path: Path) -> None:
    reported = restored(good, tmp_path)
    seek_after_restore(good, tmp_path, 6, [row((0, 8), "D", AGAIN)])
    found = good.ask(tmp_path, **reported).findings
    assert len(found) == 2 and all("partition 0 offset 5: id ('C',) " in each for each in found), found


def test_rows_that_a_re_read_after_a_restore_duplicates_are_found(good: Scene, tmp_path: Path) -> None:
    reported = restored(good, tmp_path)
    seek_after_restore(good, tmp_path, 5, [row((0, 5), "C", AGAIN), row((0, 8), "D", AGAIN), row((1, 0), "E", AGAIN)])
    assert "orders: id ('E',) is in the target 2 times (a)" in good.ask(tmp_path, **reported).findings
