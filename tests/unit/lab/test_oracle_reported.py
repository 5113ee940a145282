"""Changes that a test reports to the oracle are excused, and no others: deleted, updated or restored rows, a recreated topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.lab.oracle.sources import KafkaView
from tests.unit.lab.oracle_scene import (
    AGAIN,
    TOPIC_ID,
    Scene,
    Statement,
    batch,
    fence,
    less,
    quarantined,
    row,
    seek,
    sums_of,
    transaction,
    value,
)

D = ("D",)
OTHER = "5f0c1b1e-3f0a-4f0e-9b7d-6a0c6f8a9c11"
HERE: dict[str, Any] = {"sources": (TOPIC_ID, OTHER), "source": 1}


@pytest.fixture
def recreated(good: Scene) -> tuple[Scene, KafkaView]:
    """The topic is recreated after the good run, with A again, G and poison. Also returns the view of the former topic."""
    former = good.view()
    good.quarantine[1].rows[0]["value"] = good.kafka[0, 2]
    good.kafka, good.topic_id = {(0, 0): value("A"), (0, 1): value("G"), (0, 2): b"{"}, OTHER
    ranges = {0: [0, 3], 1: [0, 0]}
    good.target += [fence(2), seek(2, {0: 0, 1: 0}, **HERE), batch(AGAIN, ranges, [row((0, 1), "G", AGAIN, source=1)], **HERE)]
    good.quarantine += [fence(2), batch(AGAIN, {}, [quarantined((0, 2), AGAIN, OTHER, 1)], **HERE)]
    good.book().manifest += transaction(4, "committed", ("A", value("A")), ("G", value("G")))
    return good, former


Change = Callable[[Scene], object]


def test_a_recreated_topic_is_judged_together_with_the_former_one(recreated: tuple[Scene, KafkaView], tmp_path: Path) -> None:
    scene, former = recreated
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
    "a record of the new topic is mistaken for an old one": (
        lambda scene: scene.target[6].rows.clear(),
        "partition 0 offset 1: id ('G',) was committed and is lost",
    ),
    "its poison is mistaken for a stored record": (
        lambda scene: scene.quarantine.pop(),
        "partition 0 offset 2: no id can be read from the record, and it is not in the quarantine: dropped",
    ),
    "both topics insert the same id": (
        lambda scene: scene.target[6].rows.append(row((0, 0), "A", AGAIN, source=1)),
        "id ('A',) is in the target 2 times",
    ),
    "a batch of the new topic changes rows of the former": (
        lambda scene: scene.target[6].rows.append(scene.target[2].rows.pop(0)),
        "target version 6 (batch) changes epoch 1 batch 2 in source 0 partition 0 from 1 to 2 rows: a batch was torn",
    ),
    "a posting of the former topic miscounts": (
        lambda scene: scene.target[2].counts[0].__setitem__(slice(1, 4), [2, 0, 1]),
        "epoch 1 batch 2, source 0 partition 0: the postings have (1, 1, ",
    ),
    "a batch continues in the former topic": (
        lambda scene: scene.target[6].alter(source=0),
        "and no start or seek leads there",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_with_a_recreated_topic_an_injected_error_is_found(recreated: tuple[Scene, KafkaView], tmp_path: Path, name: str) -> None:
    scene, former = recreated
    change, expected = WRONG[name]
    change(scene)
    found = scene.judge(tmp_path, former=(former,)).findings
    assert any(expected in finding for finding in found), found


def test_a_record_lost_with_its_deleted_topic_is_excused_by_its_id(recreated: tuple[Scene, KafkaView], tmp_path: Path) -> None:
    scene, former = recreated
    scene.manifest += transaction(5, "committed", ("H", value("H")))
    assert any("id ('H',)" in finding for finding in scene.judge(tmp_path, former=(former,)).findings)
    scene.ask(tmp_path, former=(former,), excused_ids=frozenset({("H",)})).assert_clean()


def test_rows_removed_by_a_commit_that_is_not_the_tests_own_are_found(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/target")).delete("order_id = 'D'")
    found = good.ask(tmp_path, excused_ids=frozenset({D})).findings
    assert found == ("orders: target version 4 (DELETE) removes or changes rows, but it is not a commit of the test (e)",)
    good.ask(tmp_path, excused_ids=frozenset({D}), own_versions=frozenset({4})).assert_clean()
    assert any("id ('D',) was committed and is lost" in each for each in good.ask(tmp_path, own_versions=frozenset({4})).findings)


def test_an_id_that_was_duplicate_for_a_while_is_found_even_after_a_delete(good: Scene, tmp_path: Path) -> None:
    good.target[2].rows.append(row((0, 3), "A"))
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/target")).delete("_partition = 0 AND _offset = 3")
    assert "orders: target version 3 holds id ('A',) 2 times (e)" in good.ask(tmp_path, own_versions=frozenset({4})).findings


@pytest.mark.parametrize("own", [True, False])
def test_a_retry_that_becomes_a_row_after_a_delete_does_not_count_as_a_skipped_event(good: Scene, tmp_path: Path, own: bool) -> None:
    """B is deleted after batch 2, and its retry in batch 3 becomes a row."""
    later = good.target.pop()
    later.rows.append(row((0, 6), "B", (1, 3)))
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/target")).delete("order_id = 'B'")
    good.target = [later]
    good.book(later).write(tmp_path)
    found = good.ask(tmp_path, own_versions=frozenset({3} if own else ())).findings
    assert len(found) == (0 if own else 1) and not any("passed over" in each for each in found), found


def updated(scene: Scene, lake: Path, amount: str) -> dict[str, Any]:
    """Write the good run, then UPDATE D. Returns the arguments that report it to the oracle."""
    scene.write(lake)
    DeltaTable(str(lake / "shop/orders/target")).update({"amount": amount}, predicate="order_id = 'D'")
    return {"own_versions": frozenset({4}), "updated": {D: {"amount": 99}}}


def test_an_update_that_is_reported_to_the_oracle_must_be_in_the_table(good: Scene, tmp_path: Path) -> None:
    reported = updated(good, tmp_path, "99")
    good.ask(tmp_path, **reported).assert_clean()
    without = good.ask(tmp_path, own_versions=reported["own_versions"]).findings
    assert without == ("orders: partition 0 offset 8: id ('D',) has amount = Decimal('99.00'), and Decimal('12.50') was produced (d)",)


def test_an_update_that_is_lost_or_changes_more_rows_is_found(good: Scene, tmp_path: Path) -> None:
    reported = updated(good, tmp_path, "12.5")
    lost = ("orders: partition 0 offset 8: id ('D',) has amount = Decimal('12.50'), and the test's UPDATE left 99 (d)",)
    assert good.ask(tmp_path, **reported).findings == lost
    DeltaTable(str(tmp_path / "shop/orders/target")).update({"amount": "99"}, predicate="order_id IN ('C', 'D')")
    more = good.ask(tmp_path, updated=reported["updated"], own_versions=frozenset({4, 5})).findings
    assert len(more) == 1 and "id ('C',) has amount" in more[0]


def emptied(scene: Scene, lake: Path, *, re_read: bool) -> None:
    """The test empties the quarantine after the good run, and a seek re-reads the first range."""
    scene.write(lake)
    DeltaTable(str(lake / "shop/orders/quarantine")).delete("offset = 2")
    ranges = {0: [0, 5], 1: [0, 0]}
    scene.target = [fence(2), seek(2, {0: 0, 1: 0}), batch(AGAIN, ranges)]
    scene.quarantine = [fence(2), batch(AGAIN, {}, [quarantined((0, 2), AGAIN)])]
    scene.book()
    if not re_read:
        scene.quarantine.pop()
    scene.write(lake)


def test_rows_that_the_test_deleted_from_quarantine_are_accounted_for(good: Scene, tmp_path: Path) -> None:
    emptied(good, tmp_path, re_read=True)
    good.ask(tmp_path, own_quarantine_versions=frozenset({2})).assert_clean()
    finding = "orders: quarantine version 2 (DELETE) removes or changes rows, but it is not a commit of the test (e)"
    assert good.ask(tmp_path).findings == (finding,)


def test_rows_that_the_test_deleted_from_quarantine_and_no_batch_re_read_are_found(good: Scene, tmp_path: Path) -> None:
    emptied(good, tmp_path, re_read=False)
    found = good.ask(tmp_path, own_quarantine_versions=frozenset({2})).findings
    assert any("offset 2: no id can be read from the record, and it is not in the quarantine: dropped (b)" in each for each in found), found
    assert any("epoch 2 batch 2, source 0 partition 0: the postings have (1, 2, " in each for each in found), found


def test_a_foreign_update_of_the_quarantine_is_found(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    DeltaTable(str(tmp_path / "shop/orders/quarantine")).update({"state": "'dropped'"})
    found = "orders: quarantine version 2 (UPDATE) removes or changes rows, but it is not a commit of the test (e)"
    assert good.ask(tmp_path).findings == (found,)


def test_rows_that_a_restore_brings_back_no_longer_count_as_deleted(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    table = DeltaTable(str(tmp_path / "shop/orders/quarantine"))
    table.delete("offset = 2")
    table.restore(1)
    good.ask(tmp_path, own_quarantine_versions=frozenset({2, 3})).assert_clean()


@pytest.mark.parametrize(
    ("delete", "restore", "written_off", "clean"),
    [
        (True, False, "", True),
        (True, False, "D", False),
        (False, True, "CD", True),
        (False, True, "", False),
        (False, True, "C", False),
        (True, True, "CD", True),
        (True, True, "C", False),
    ],
)
def test_a_seek_writes_off_what_a_restore_took_but_not_what_a_delete_did(
    good: Scene, tmp_path: Path, delete: bool, restore: bool, written_off: str, clean: bool
) -> None:
    """A DELETE takes D, a RESTORE all of batch 3, with what the DELETE took before."""
    good.write(tmp_path)
    table = DeltaTable(str(tmp_path / "shop/orders/target"))
    if delete:
        table.delete("order_id = 'D'")
    if restore:
        table.restore(2)
    rows = {"C": row((0, 5), "C", (1, 3)), "D": row((0, 8), "D", (1, 3))}
    off = [1, 3, 0, 0, None, None, None, 0, 0, 0, *less(sums_of([rows[name] for name in written_off])), 0, 0, 0]
    good.target = [fence(2), seek(2, {0: 9, 1: 3}, snapshots={"target": 3 + delete + restore}, more={"write-off": [off]})]
    good.quarantine = [fence(2)]
    good.write(tmp_path)
    own, excused = frozenset({4, 5} if delete and restore else {4}), frozenset({D, ("C",)})
    found = good.ask(tmp_path, own_versions=own, excused_ids=excused).findings
    assert found == () if clean else len(found) == 1 and "batch 3, source 0 partition 0: the postings have (" in found[0], found


@pytest.mark.parametrize("table", ["target", "quarantine"])
@pytest.mark.parametrize("posted", [True, False])
def test_an_upkeep_may_remove_what_it_posts_and_nothing_else(good: Scene, tmp_path: Path, table: str, posted: bool) -> None:
    gone = good.target[3].rows[1] if table == "target" else good.quarantine[1].rows[0]
    number, none = [1, 3 if table == "target" else 2, 0, 0], [0, 0, 0]
    sums = [*less(sums_of([gone])), *none] if table == "target" else [*none, *less(sums_of([gone]))]
    removal = Statement("upkeep", where='"_offset" = 8' if table == "target" else '"offset" = 2')
    removal.more = {"erasure": [[*number, None, None, None, 0, 0, 0, *(sums if posted else 2 * none)]]}
    (good.target if table == "target" else good.quarantine).append(removal)
    if table == "quarantine":
        del good.kafka[0, 2]  # otherwise the record is missing
        good.target[2].counts[0][0] = 4
    found = [each for each in good.judge(tmp_path, excused_ids=frozenset({D})).findings if "Kafka shows" not in each]
    if not posted:
        assert any("(upkeep) changes epoch 1 batch" in each for each in found) and any("the postings have" in each for each in found), found
    else:
        assert not [each for each in found if "in the quarantine, and no committed record" not in each], found
