"""Later epochs as the oracle judges them: seeks and their gaps, beginnings in the ledger, re-reads, and roll-backs of the quarantine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.unit.lab.oracle_scene import AGAIN, SECOND, Rows, Scene, Statement, batch, begins, fence, ledger, quarantined, row, seek

C = frozenset({("C",)})
D_AGAIN = batch(AGAIN, {0: [6, 9], 1: [3, 3]}, [row((0, 8), "D", AGAIN)])


@pytest.fixture
def over(good: Scene) -> Scene:
    """C has expired before a seek begins behind it: versions 3 the fence, 4 the seek, 5 its batch."""
    good.begin[0] = 6
    good.target[3:] = [fence(2), seek(2, {0: 6, 1: 3}, gaps={0: [[5, 6]]}), replace(D_AGAIN)]
    good.quarantine.append(fence(2))
    good.ledger[4:] = [
        ledger(AGAIN, 0, 6, 9, 5, records_read=2, inserted=1, duplicate=1, gap=1),
        ledger(AGAIN, 1, 3, 3, 5),
        *begins(2, {0: 6, 1: 3}, 4),
        ledger((2, 1), 0, 5, 6, 4, kind="gap_accepted", gap=1),
    ]
    return good


def test_an_accepted_gap_that_the_ledger_records_is_clean(over: Scene, tmp_path: Path) -> None:
    verdict = over.judge(tmp_path, excused_ids=C)
    verdict.assert_clean()
    assert verdict.notes == ("orders: the payload of 2 rows cannot be compared, Kafka does not show their records",)
    lost = "orders: id ('C',) was committed, is no longer in Kafka and is neither in target nor in quarantine (a)"
    assert over.ask(tmp_path).findings == (lost,)


Plant = Callable[[Scene], object]
GAP, BEGAN = -1, -3
WRONG: dict[str, tuple[Plant, str]] = {
    "no gap is accepted": (
        lambda scene: (scene.target[4].alter(gaps={}), scene.ledger.pop()),
        "partition 0 offsets [5, 6) were read by no batch, and no gap is accepted (a)",
    ),
    "the gap is not in the ledger": (lambda scene: scene.ledger.pop(), "('gap_accepted', 2, 1, 0, 5): it is missing"),
    "the gap is there twice": (lambda scene: scene.ledger.append(scene.ledger[GAP]), "('gap_accepted', 2, 1, 0, 5): it is there 2 times"),
    "a gap that no seek accepts": (
        lambda scene: scene.ledger.append(scene.ledger[GAP] | {"partition": 1}),
        "('gap_accepted', 2, 1, 1, 5) names target version 4, and no target commit of that is in the log (g)",
    ),
    "the gap's length": (lambda scene: scene.ledger[GAP].update(gap=2), "gap 2, and it spans 1 offsets (g)"),
    "the gap's end": (lambda scene: scene.ledger[GAP].update(end_offset=7, gap=2), "says (7, "),
    "a gap of what was read": (lambda scene: scene.target[4].gaps.update({0: [[4, 6]]}), "and version 2 has read [0, 5) (f)"),
    "a gap behind the start": (lambda scene: scene.target[4].gaps.update({0: [[5, 7]]}), "[5, 7) in partition 0, and begins at 6 (f)"),
    "a beginning is missing": (lambda scene: scene.ledger.pop(BEGAN), "('epoch', 2, 1, 0, 6): it is missing"),
    "a beginning is there twice": (lambda scene: scene.ledger.append(scene.ledger[BEGAN]), "('epoch', 2, 1, 0, 6): it is there 2 times"),
    "a beginning elsewhere": (lambda scene: scene.ledger[BEGAN].update(start_offset=5, end_offset=5), "('epoch', 2, 1, 0, 5) names"),
    "a beginning for another reason": (lambda scene: scene.ledger[BEGAN].update(why="first"), "'first'), the target's log (6, "),
    "the seek begins one late": (lambda scene: scene.target[4].starts.update({0: 7}), "expected to start at 7 (f)"),
    "the seek adds a row": (
        lambda scene: scene.target[4].rows.append(row((0, 8), "D", (2, 1))),
        "(WRITE) changes epoch 2 batch 1 in partition 0",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_seek_says_wrongly_is_found(over: Scene, tmp_path: Path, name: str) -> None:
    change, expected = WRONG[name]
    change(over)
    found = over.judge(tmp_path, excused_ids=C).findings
    assert any(expected in each for each in found), found


@pytest.mark.parametrize("number", [AGAIN, (3, 2)])
def test_a_start_without_a_seek_goes_on_at_the_tables_ends_and_the_ledger_tells_its_beginning(
    good: Scene, tmp_path: Path, number: tuple[int, int]
) -> None:
    """Epoch 2 may have fenced and written nothing."""
    epoch = number[0]
    good.target += [*map(fence, range(2, epoch + 1)), batch(number, {0: [9, 9], 1: [3, 3], 2: [0, 0]})]
    good.quarantine += map(fence, range(2, epoch + 1))
    version = 3 + epoch
    good.ledger += [ledger(number, p, at, at, version) for p, at in ((0, 9), (1, 3), (2, 0))]
    lacking = good.judge(tmp_path).findings
    missing = [f"orders: ledger, ('epoch', {epoch}, 0, {p}, {at}): it is missing" for p, at in ((0, 9), (1, 3), (2, 0))]
    assert [each.partition(", the target's")[0] for each in lacking] == missing
    good.ledger = begins(epoch, {0: 9, 1: 3, 2: 0}, version, "start")
    good.write(tmp_path)
    good.ask(tmp_path).assert_clean()


def read_again(scene: Scene, *, stood: int | None = 3) -> None:
    """A seek to the earliest, whose batch adds nothing."""
    snapshots = {"target": 4, "quarantine": 2}
    scene.target += [fence(2), seek(2, {0: 0, 1: 0}, snapshots=snapshots), batch(AGAIN, {0: [0, 9], 1: [0, 3]})]
    scene.quarantine.append(fence(2))
    scene.ledger[2]["stood"] = stood
    scene.ledger += [
        ledger(AGAIN, 0, 0, 9, 6, records_read=7, duplicate=7, gap=2),
        ledger(AGAIN, 1, 0, 3, 6, records_read=3, duplicate=3),
        *begins(2, {0: 0, 1: 0}, 5),
    ]


@pytest.mark.parametrize(("stood", "clean"), [(3, True), (None, True), (2, False)])
def test_what_stood_of_a_batch_when_it_is_read_again_is_counted_at_the_seek(
    good: Scene, tmp_path: Path, stood: int | None, clean: bool
) -> None:
    read_again(good, stood=stood)
    found = good.judge(tmp_path).findings
    assert found == (() if clean else ("orders: ledger, ('batch', 1, 2, 0, 0): existing rows 2, the seeks that read it again saw [3] (g)",))


def test_a_row_that_a_re_read_adds_though_it_was_there_is_found(good: Scene, tmp_path: Path) -> None:
    read_again(good)
    good.target[-1].rows.append(row((0, 1), "B", AGAIN))
    found = good.judge(tmp_path).findings
    assert (
        "orders: id ('B',) is in the target 2 times (a)" in found and "orders: partition 0 offset 1 is in the target 2 times (b)" in found
    )


@pytest.fixture
def cut_off(good: Scene) -> Scene:
    """Batch 3 put its poison into quarantine and was killed; epoch 2 rolls that back and reads the range again."""
    good.kafka[0, 7] = b"{"
    again = {0: [5, 9], 1: [3, 3]}
    good.target[3:] = [fence(2), batch(AGAIN, again, [row((0, 5), "C", AGAIN), row((0, 8), "D", AGAIN)])]
    good.quarantine += [
        batch(SECOND, again, [quarantined((0, 7), SECOND)]),
        fence(2),
        Statement("rollback", 2, 1, where="epoch < 2 AND epoch = 1 AND batch > 2 AND partition = 0 AND offset >= 5"),
        batch(AGAIN, again, [quarantined((0, 7), AGAIN)]),
    ]
    good.ledger[4:] = [
        ledger(AGAIN, 0, 5, 9, 4, records_read=4, inserted=2, duplicate=1, quarantined=1),
        ledger(AGAIN, 1, 3, 3, 4),
        *begins(2, {0: 5, 1: 3}, 4, "start"),
    ]
    return good


def test_a_cut_off_batch_that_is_rolled_back_and_read_again_is_clean(cut_off: Scene, tmp_path: Path) -> None:
    cut_off.judge(tmp_path).assert_clean()


def without_roll_back(scene: Scene) -> None:
    """The MERGE on the position adds nothing then."""
    del scene.quarantine[-2:]
    scene.ledger[4].update(quarantined=0, duplicate=2)


NOT_ROLLED_BACK: dict[str, tuple[Plant, str]] = {
    "no roll-back": (
        without_roll_back,
        "offset 7: the quarantine names epoch 1 batch 3, and no target commit of that is in the log; epoch 2 reads it again",
    ),
    "a committed batch is rolled back": (
        lambda scene: scene.quarantine[-2].alter(where="epoch < 2"),
        "quarantine version 4 (rollback) changes epoch 1 batch 2 in partition 0 from 1 to 0 rows",
    ),
    "nobody's DELETE": (lambda scene: scene.quarantine[-2].alter(app_id=None), "quarantine version 4 (DELETE) removes or changes rows"),
    "a DELETE of another kind": (
        lambda scene: scene.quarantine[-2].alter(mark={"kind": "maintenance"}),
        "quarantine version 4 (DELETE) removes or changes rows",
    ),
    "no epoch begins behind it": (
        lambda scene: ([scene.target.pop() for _ in range(2)], [scene.quarantine.pop() for _ in range(3)]),
        "offset 7: the quarantine names epoch 1 batch 3, and no target commit of that is in the log, and no later epoch has started (g)",
    ),
    "a record of another batch is put back": (
        lambda scene: scene.quarantine[-1].rows[0].update(epoch=1, batch=3),
        "quarantine version 5 (batch) changes epoch 1 batch 3 in partition 0 from 0 to 1 rows",
    ),
}


@pytest.mark.parametrize("name", NOT_ROLLED_BACK)
def test_a_wrong_roll_back_is_found(cut_off: Scene, tmp_path: Path, name: str) -> None:
    change, expected = NOT_ROLLED_BACK[name]
    change(cut_off)
    found = cut_off.judge(tmp_path).findings
    assert any(expected in each for each in found), found


@pytest.mark.parametrize("left", ["behind a gap", "of another topic"])
def test_what_a_cut_off_batch_left_and_nobody_reads_again_stays(cut_off: Scene, tmp_path: Path, left: str) -> None:
    """The topic's records up to offset 8 have expired before epoch 2 begins there, or the topic was made again."""
    former = cut_off.view()
    del cut_off.quarantine[-2:]
    if left == "behind a gap":
        cut_off.begin[0] = 8
        sought_there = seek(2, {0: 8, 1: 3}, gaps={0: [[5, 8]]})
        read = batch(AGAIN, {0: [8, 9], 1: [3, 3]}, [row((0, 8), "D", AGAIN)])
        cut_off.ledger[4:] = [ledger(AGAIN, 0, 8, 9, 5, records_read=1, inserted=1), ledger(AGAIN, 1, 3, 3, 5), *begins(2, {0: 8, 1: 3}, 4)]
        cut_off.ledger.append(ledger((2, 1), 0, 5, 8, 4, kind="gap_accepted", gap=3))
    else:
        other = "5f0c1b1e-3f0a-4f0e-9b7d-6a0c6f8a9c11"
        shown = {place: record for place, record in former.records.items() if place[1] < 5 or place == (0, 7)}
        former = replace(former, records=shown)
        for each in cut_off.quarantine:
            each.rows = [kept | {"value": cut_off.kafka[kept["partition"], kept["offset"]]} for kept in each.rows]
        cut_off.kafka, cut_off.topic_id = {}, other
        sought_there = seek(2, {0: 0, 1: 0}, topic_id=other)
        read = batch(AGAIN, {0: [0, 0], 1: [0, 0]}, topic_id=other)
        cut_off.ledger[4:] = [ledger(AGAIN, p, 0, 0, 5, topic_id=other) for p in (0, 1)]
        cut_off.ledger += [each | {"topic_id": other} for each in begins(2, {0: 0, 1: 0}, 4)]
    cut_off.target[4:] = [sought_there, read]
    gone = frozenset({("C",), ("D",)})
    cut_off.judge(tmp_path, excused_ids=gone, former=() if left == "behind a gap" else (former,)).assert_clean()


def replayed(scene: Scene, where: str) -> Statement:
    """A seek reads again what a contract refused, and its batch makes a row of it."""
    scene.target[3].rows.pop()
    scene.ledger[4] |= {"inserted": 1, "quarantined": 1}
    scene.quarantine.append(batch(SECOND, {0: [5, 9], 1: [3, 3]}, [quarantined((0, 8), SECOND)]))
    read_again(scene)
    scene.target[-1].rows.append(row((0, 8), "D", AGAIN))
    scene.ledger[6] |= {"inserted": 1, "duplicate": 6}
    scene.target[-2].snapshots["quarantine"] = 3
    return Statement("replayed", *AGAIN, where=where)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("offset = 8", None),
        ("offset = 80", "offset 8: id ('D',) is in the target and, open, in the quarantine (b)"),
        ("offset >= 2", "offset 2: no id can be read from the record, and it is not in the quarantine: dropped (b)"),
    ],
)
def test_a_record_in_quarantine_that_a_re_read_makes_a_row_is_replayed(
    good: Scene, tmp_path: Path, where: str, expected: str | None
) -> None:
    good.quarantine.append(replayed(good, where))
    found = good.judge(tmp_path, valid_in_quarantine=True).findings
    assert any(expected in each for each in found) if expected else found == (), found


def restored(scene: Scene, lake: Path) -> dict[str, Any]:
    """The target is put back to before batch 3; what the oracle is told of it."""
    scene.write(lake)
    DeltaTable(str(lake / "shop/orders/target")).restore(2)
    return {"own_versions": frozenset({4})}


def sought(scene: Scene, lake: Path, start: int, rows: Rows) -> None:
    """Behind the RESTORE, a seek that begins here, and its batch."""
    scene.target = [fence(2), seek(2, {0: start, 1: 3}), batch(AGAIN, {0: [start, 9], 1: [3, 3]}, rows)]
    scene.quarantine = [fence(2)]
    records = sum(place[0] == 0 and place[1] >= start for place in scene.kafka)
    counts = {"records_read": records, "inserted": len(rows), "duplicate": records - len(rows), "gap": 9 - start - records}
    scene.ledger = [ledger(AGAIN, 0, start, 9, 7, **counts), ledger(AGAIN, 1, 3, 3, 7), *begins(2, {0: start, 1: 3}, 6)]
    scene.write(lake)


def test_what_a_restore_took_away_and_a_later_epoch_reads_again_is_clean(good: Scene, tmp_path: Path) -> None:
    told = restored(good, tmp_path)
    sought(good, tmp_path, 5, [row((0, 5), "C", AGAIN), row((0, 8), "D", AGAIN)])
    good.ask(tmp_path, **told).assert_clean()
    without = good.ask(tmp_path).findings
    assert without == ("orders: target version 4 (RESTORE) removes or changes rows, but it is not a commit of the test (e)",)


def test_a_seek_behind_a_restore_that_begins_too_late_is_found(good: Scene, tmp_path: Path) -> None:
    told = restored(good, tmp_path)
    sought(good, tmp_path, 6, [row((0, 8), "D", AGAIN)])
    found = good.ask(tmp_path, **told).findings
    assert len(found) == 2 and all("partition 0 offset 5: id ('C',) " in each for each in found), found


def test_rows_that_come_back_beside_what_was_read_again_are_found(good: Scene, tmp_path: Path) -> None:
    told = restored(good, tmp_path)
    sought(good, tmp_path, 5, [row((0, 5), "C", AGAIN), row((0, 8), "D", AGAIN), row((1, 0), "E", AGAIN)])
    assert "orders: id ('E',) is in the target 2 times (a)" in good.ask(tmp_path, **told).findings
