"""What the oracle is told of a test's own deeds excuses these and nothing else: rows deleted, updated or restored, a topic made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.lab.oracle.sources import KafkaView
from tests.unit.lab.oracle_scene import AGAIN, Scene, batch, begins, fence, good_scene, ledger, quarantined, row, seek, transaction, value

D = ("D",)
HERE = {"topic_id": "5f0c1b1e-3f0a-4f0e-9b7d-6a0c6f8a9c11"}


@pytest.fixture
def again(good: Scene) -> tuple[Scene, KafkaView]:
    """The topic is made again behind the good run: A once more, G and poison; and what the first one showed."""
    former = good.view()
    good.quarantine[1].rows[0]["value"] = good.kafka[0, 2]
    good.kafka, good.topic_id = {(0, 0): value("A"), (0, 1): value("G"), (0, 2): b"{"}, HERE["topic_id"]
    ranges = {0: [0, 3], 1: [0, 0]}
    good.target += [fence(2), seek(2, {0: 0, 1: 0}, **HERE), batch(AGAIN, ranges, [row((0, 1), "G", AGAIN)], **HERE)]
    good.quarantine += [fence(2), batch(AGAIN, ranges, [quarantined((0, 2), AGAIN, **HERE)], **HERE)]
    good.ledger += [ledger(AGAIN, 0, 0, 3, 6, records_read=3, inserted=1, duplicate=1, quarantined=1, **HERE)]
    good.ledger += [ledger(AGAIN, 1, 0, 0, 6, **HERE), *(each | HERE for each in begins(2, {0: 0, 1: 0}, 5))]
    good.manifest += transaction(4, "committed", ("A", value("A")), ("G", value("G")))
    return good, former


Change = Callable[[Scene], object]


def test_a_topic_that_was_made_again_is_judged_with_the_one_before_it(again: tuple[Scene, KafkaView], tmp_path: Path) -> None:
    scene, former = again
    verdict = scene.judge(tmp_path, former=(former,))
    verdict.assert_clean()
    assert verdict.notes == ()
    without = scene.ask(tmp_path).findings
    assert any("manifest and topic do not belong together" in each for each in without)
    assert any("6 rows of the target name the topic id" in each for each in without)


WRONG: dict[str, tuple[Change, str]] = {
    "a record of the former topic is lost": (
        lambda scene: scene.target[3].rows.pop(),
        "partition 0 offset 8: id ('D',) was committed and is lost",
    ),
    "a record of the new one is taken for an old one": (
        lambda scene: scene.target[6].rows.clear(),
        "partition 0 offset 1: id ('G',) was committed and is lost",
    ),
    "its poison is taken for what stands there": (
        lambda scene: scene.quarantine.pop(),
        "partition 0 offset 2: no id can be read from the record, and it is not in the quarantine: dropped",
    ),
    "an id is let in by both": (lambda scene: scene.target[6].rows.append(row((0, 0), "A", AGAIN)), "id ('A',) is in the target 2 times"),
    "a batch of the one changes the rows of the other": (
        lambda scene: scene.target[6].rows.append(scene.target[2].rows.pop(0)),
        "target version 6 (batch) changes epoch 1 batch 2 in partition 0 from 1 to 2 rows: a batch was torn",
    ),
    "the ledger miscounts the former": (lambda scene: scene.ledger[2].update(duplicate=2, inserted=1), "inserted 1, the target holds 2"),
    "a batch goes on in the former": (lambda scene: scene.target[6].alter(topic_id=good_scene().topic_id), "and no seek leads there"),
}


@pytest.mark.parametrize("name", WRONG)
def test_with_a_topic_made_again_a_planted_wrong_is_found(again: tuple[Scene, KafkaView], tmp_path: Path, name: str) -> None:
    scene, former = again
    change, expected = WRONG[name]
    change(scene)
    found = scene.judge(tmp_path, former=(former,)).findings
    assert any(expected in finding for finding in found), found


def test_what_went_with_its_topic_unread_is_excused_by_its_id(again: tuple[Scene, KafkaView], tmp_path: Path) -> None:
    scene, former = again
    scene.manifest += transaction(5, "committed", ("H", value("H")))
    assert any("id ('H',)" in finding for finding in scene.judge(tmp_path, former=(former,)).findings)
    scene.ask(tmp_path, former=(former,), excused_ids=frozenset({("H",)})).assert_clean()


def test_rows_that_another_commit_than_the_tests_own_takes_away_are_found(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/target")).delete("order_id = 'D'")
    found = good.ask(tmp_path, excused_ids=frozenset({D})).findings
    assert found == ("orders: target version 4 (DELETE) removes or changes rows, but it is not a commit of the test (e)",)
    good.ask(tmp_path, excused_ids=frozenset({D}), own_versions=frozenset({4})).assert_clean()
    assert any("id ('D',) was committed and is lost" in each for each in good.ask(tmp_path, own_versions=frozenset({4})).findings)


def test_an_id_that_was_doubled_for_a_while_is_found_though_a_delete_has_hidden_it(good: Scene, tmp_path: Path) -> None:
    good.target[2].rows.append(row((0, 3), "A"))
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/target")).delete("_partition = 0 AND _offset = 3")
    assert "orders: target version 3 holds id ('A',) 2 times (e)" in good.ask(tmp_path, own_versions=frozenset({4})).findings


@pytest.mark.parametrize("own", [True, False])
def test_a_copy_that_was_read_before_its_row_was_deleted_is_not_passed_over(good: Scene, tmp_path: Path, own: bool) -> None:
    """B is deleted behind batch 2, and its retry in batch 3 is a row again."""
    later = good.target.pop()
    later.rows.append(row((0, 6), "B", (1, 3)))
    good.ledger[4] |= {"inserted": 3, "duplicate": 0, "target_version": 4}
    good.ledger[5] |= {"target_version": 4}
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/target")).delete("order_id = 'B'")
    good.target = [later]
    good.write(tmp_path)
    found = good.ask(tmp_path, own_versions=frozenset({3} if own else ())).findings
    assert len(found) == (0 if own else 1) and not any("passed over" in each for each in found), found


def updated(scene: Scene, lake: Path, amount: str) -> dict[str, Any]:
    """The good run, then an UPDATE of D; what the oracle is told of it."""
    scene.write(lake)
    DeltaTable(str(lake / "shop/orders/target")).update({"amount": amount}, predicate="order_id = 'D'")
    return {"own_versions": frozenset({4}), "updated": {D: {"amount": 99}}}


def test_an_update_that_the_oracle_is_told_of_must_be_there(good: Scene, tmp_path: Path) -> None:
    told = updated(good, tmp_path, "99")
    good.ask(tmp_path, **told).assert_clean()
    without = good.ask(tmp_path, own_versions=told["own_versions"]).findings
    assert without == ("orders: partition 0 offset 8: id ('D',) has amount = Decimal('99.00'), and Decimal('12.50') was produced (d)",)


def test_an_update_that_was_lost_or_changed_more_is_found(good: Scene, tmp_path: Path) -> None:
    told = updated(good, tmp_path, "12.5")
    lost = ("orders: partition 0 offset 8: id ('D',) has amount = Decimal('12.50'), and the test's UPDATE left 99 (d)",)
    assert good.ask(tmp_path, **told).findings == lost
    DeltaTable(str(tmp_path / "shop/orders/target")).update({"amount": "99"}, predicate="order_id IN ('C', 'D')")
    more = good.ask(tmp_path, updated=told["updated"], own_versions=frozenset({4, 5})).findings
    assert len(more) == 1 and "id ('C',) has amount" in more[0]


def emptied(scene: Scene, lake: Path, *, read_again: bool) -> None:
    """The test empties the quarantine behind the good run, and a seek reads the first range again."""
    scene.write(lake)
    DeltaTable(str(lake / "shop/orders/quarantine")).delete("offset = 2")
    ranges = {0: [0, 5], 1: [0, 0]}
    scene.target = [fence(2), seek(2, {0: 0, 1: 0}), batch(AGAIN, ranges)]
    scene.quarantine = [fence(2), *([batch(AGAIN, ranges, [quarantined((0, 2), AGAIN)])] if read_again else [])]
    scene.ledger = [ledger(AGAIN, 0, 0, 5, 6, records_read=4, duplicate=3, quarantined=1, gap=1), ledger(AGAIN, 1, 0, 0, 6)]
    scene.ledger += begins(2, {0: 0, 1: 0}, 5)
    scene.write(lake)


def test_what_the_test_took_from_the_quarantine_is_reckoned_with(good: Scene, tmp_path: Path) -> None:
    emptied(good, tmp_path, read_again=True)
    good.ask(tmp_path, own_quarantine_versions=frozenset({2})).assert_clean()
    taken = "orders: quarantine version 2 (DELETE) removes or changes rows, but it is not a commit of the test (e)"
    assert good.ask(tmp_path).findings == (taken,)


def test_what_the_test_took_from_the_quarantine_and_nobody_read_again_is_found(good: Scene, tmp_path: Path) -> None:
    emptied(good, tmp_path, read_again=False)
    found = good.ask(tmp_path, own_quarantine_versions=frozenset({2})).findings
    assert any("offset 2: no id can be read from the record, and it is not in the quarantine: dropped (b)" in each for each in found), found
    assert any("epoch', 2" not in each and "quarantined 1, the quarantine holds 0 rows of it (b)" in each for each in found), found


def test_a_quarantine_whose_rows_somebody_has_changed_is_found(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/quarantine")).update({"state": "'dropped'"})
    found = "orders: quarantine version 2 (UPDATE) removes or changes rows, but it is not a commit of the test (e)"
    assert good.ask(tmp_path).findings == (found,)


def test_what_a_restore_brings_back_is_taken_no_more(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    table = DeltaTable(str(tmp_path / "shop/orders/quarantine"))
    table.delete("offset = 2")
    table.restore(1)
    good.ask(tmp_path, own_quarantine_versions=frozenset({2, 3})).assert_clean()
