"""What the oracle is told of a test's own deeds excuses these and nothing else: a topic made again, an UPDATE, a quarantine restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.oracle.sources import KafkaView
from tests.unit.oracle_scene import APP, LATER, Scene, TargetCommit, good_scene, ledger, quarantined, rebase, row, transaction, value

AGAIN = "5f0c1b1e-3f0a-4f0e-9b7d-6a0c6f8a9c11"
SECOND = APP.replace("q1", "q2")
D = ("D",)


@pytest.fixture
def good() -> Scene:
    return good_scene()


@pytest.fixture
def again(good: Scene) -> tuple[Scene, KafkaView]:
    """The topic is made again behind the good run: A once more, G and poison; and what the first one showed."""
    former = good.view()
    good.quarantine[0]["value"] = good.kafka[0, 2]
    good.kafka, good.topic_id = {(0, 0): value("A"), (0, 1): value("G"), (0, 2): b"{"}, AGAIN
    here = {"_topic_id": AGAIN}
    good.commits.append(TargetCommit([row(0, 1, "G") | here], 1, {"0": [0, 3], "1": [0, 0]}, query_id="q2", app_id=SECOND, topic_id=AGAIN))
    bad = quarantined(0, 2, 1) | {"topic_id": AGAIN, "query_id": "q2"}
    good.quarantine_commits = [(0, good.quarantine), (1, [bad])]
    counts = {"records_read": 3, "inserted": 1, "duplicate": 1, "quarantined": 1}
    good.ledger.append(ledger(1, 0, 0, 3, 2, **counts) | LATER | {"topic_id": AGAIN})
    former_end, begin = (rebase(1, (9, 3), (0, 0), 1)[which] for which in (slice(2), slice(2, None)))
    good.ledger += [*former_end, *(each | {"topic_id": AGAIN} for each in begin)]
    good.manifest += transaction(4, "committed", ("A", value("A")), ("G", value("G")))
    return good, former


Change = Callable[[Scene], object]


def test_a_topic_that_was_made_again_is_judged_with_the_one_before_it(again: tuple[Scene, KafkaView], tmp_path: Path) -> None:
    scene, former = again
    verdict = scene.judge(tmp_path, former=(former,))
    verdict.assert_clean()
    assert verdict.notes == ()
    assert "manifest and topic do not belong together" in "\n".join(scene.ask(tmp_path).findings)


WRONG: dict[str, tuple[Change, str]] = {
    "a record of the former topic is lost": (
        lambda scene: scene.commits[1].rows.pop(),
        "partition 0 offset 8: id ('D',) was committed and is lost",
    ),
    "a record of the new one is taken for an old one": (
        lambda scene: scene.commits[2].rows.clear(),
        "partition 0 offset 1: id ('G',) was committed and is lost",
    ),
    "its poison is taken for what stands there": (
        lambda scene: scene.quarantine_commits.pop() if scene.quarantine_commits else None,
        "partition 0 offset 2: no id can be read from the record, and it is not in the quarantine: dropped",
    ),
    "an id is let in by both": (
        lambda scene: scene.commits[2].rows.append(row(0, 0, "A") | {"_topic_id": AGAIN}),
        "id ('A',) is in the target 2 times",
    ),
    "a batch of the one changes the rows of the other": (
        lambda scene: scene.commits[2].rows.append(scene.commits[0].rows.pop(0)),
        "version 2 changes batch 0 of query q1 in partition 0 from 1 to 2 rows: a batch was torn",
    ),
    "the ledger miscounts the former": (
        lambda scene: scene.ledger[0].update(duplicate=2, inserted=1),
        "duplicate 2 + replayed 0, and 1 records are at their own position in neither table",
    ),
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


def updated(scene: Scene, lake: Path, amount: str) -> dict[str, Any]:
    """The good run, then an UPDATE of D; what the oracle is told of it."""
    scene.write(lake)
    DeltaTable(str(lake / "shop/orders/target")).update({"amount": amount}, predicate="order_id = 'D'")
    return {"own_versions": frozenset({2}), "updated": {D: {"amount": 99}}}


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
    more = good.ask(tmp_path, updated=told["updated"], own_versions=frozenset({2, 3})).findings
    assert len(more) == 1 and "id ('C',) has amount" in more[0]


def restored(scene: Scene, lake: Path, *, read_again: bool = True) -> None:
    """The quarantine is emptied behind the good run, and another checkpoint reads the first range again."""
    scene.commits.append(TargetCommit([], 1, {"0": [0, 5], "1": [0, 0]}, query_id="q2", app_id=SECOND))
    counts = {"records_read": 4, "duplicate": 1, "quarantined": 1, "replayed": 2, "gap": 1}
    scene.ledger.append(ledger(1, 0, 0, 5, 2, **counts) | LATER)
    scene.ledger += rebase(1, (9, 3), (0, 0), 1)
    scene.write(lake)
    quarantine = lake / "shop/orders/quarantine"
    DeltaTable(str(quarantine)).delete("offset = 2")
    if read_again:
        again = Scene(scene.kafka, [], [], [], [], [(1, [quarantined(0, 2, 1) | {"query_id": "q2"}])])
        again.write_quarantine(lake)


def test_what_the_test_took_from_the_quarantine_is_reckoned_with(good: Scene, tmp_path: Path) -> None:
    restored(good, tmp_path)
    good.ask(tmp_path, own_quarantine_versions=frozenset({1})).assert_clean()
    found = "orders: ledger of query q1 batch 0 partition 0: quarantined 1, the quarantine holds 0 rows of it (g)"
    taken = "orders: version 1 of the quarantine (DELETE) takes rows away or changes them, and it is no commit of the test (e)"
    assert good.ask(tmp_path).findings == (taken, found)


def test_a_quarantine_whose_rows_somebody_has_changed_is_found(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/quarantine")).update({"state": "'dropped'"})
    found = "orders: version 1 of the quarantine (UPDATE) takes rows away or changes them, and it is no commit of the test (e)"
    assert good.ask(tmp_path).findings == (found,)


def test_what_the_test_took_from_the_quarantine_and_nobody_read_again_is_found(good: Scene, tmp_path: Path) -> None:
    restored(good, tmp_path, read_again=False)
    found = good.ask(tmp_path, own_quarantine_versions=frozenset({1})).findings
    assert any("offset 2: no id can be read from the record, and it is not in the quarantine: dropped (b)" in each for each in found), found


def test_what_a_restore_brings_back_is_taken_no_more(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    table = DeltaTable(str(tmp_path / "shop/orders/quarantine"))
    table.delete("offset = 2")
    table.restore(0)
    good.ask(tmp_path, own_quarantine_versions=frozenset({1, 2})).assert_clean()
