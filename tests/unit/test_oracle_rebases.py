"""What a rebase leaves in the ledger is judged by the oracle: it fits the batches, and none of it is missing or there twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.transaction import CommitProperties, Transaction

from ingest.oracle.tables import Lake
from tests.unit.oracle_scene import APP, LATER, Scene, TargetCommit, append, good_scene, ledger, rebase, row

THIRD = {"query_id": "q3", "epoch": 2}
Rows = list[dict[str, Any]]


def app(query_id: str, statement: str = "target") -> str:
    return APP.replace("q1", query_id).replace("target", statement)


@pytest.fixture
def good() -> Scene:
    return good_scene()


def jumped_over(scene: Scene) -> None:
    """C has expired before another checkpoint went on behind it."""
    del scene.kafka[0, 5]
    scene.commits[1] = TargetCommit([row(0, 8, "D")], 1, {"0": [6, 9], "1": [3, 3]}, query_id="q2", app_id=app("q2"))
    scene.ledger[2] = ledger(1, 0, 6, 9, 1, records_read=2, inserted=1, duplicate=1, gap=1) | LATER
    scene.ledger[3] |= LATER


def test_what_was_jumped_over_is_excused_only_with_a_gap_in_the_ledger(good: Scene, tmp_path: Path) -> None:
    jumped_over(good)
    begin = replace(good.view(), begin={0: 6, 1: 0})
    good.view = lambda: begin  # type: ignore[method-assign]
    *rebased, gap = rebased_over(5, 6)
    good.ledger += rebased
    found = good.judge(tmp_path, excused_ids=frozenset({("C",)})).findings
    assert found == ("orders: partition 0 offsets [5, 6) were read by no batch, and no gap is recorded (a)",)
    good.ledger = [gap]
    append(tmp_path / "shop/orders/ledger", good.ledger, ledger(0, 0, 0, 0, 0), CommitProperties())
    good.ask(tmp_path, excused_ids=frozenset({("C",)})).assert_clean()
    assert good.ask(tmp_path).findings == (
        "orders: id ('C',) was committed, is no longer in Kafka and is neither in target nor in quarantine (a)",
    )
    shown = replace(begin, records={place: record for place, record in begin.records.items() if place >= (0, 6)})
    good.view = lambda: shown  # type: ignore[method-assign]
    noted = good.ask(tmp_path, excused_ids=frozenset({("C",)}))
    noted.assert_clean()
    assert noted.notes == ("orders: the payload of 2 rows cannot be compared, Kafka does not show their records",)


def rebased_over(start: int, end: int) -> list[dict[str, Any]]:
    """What the rebase behind batch 0 leaves: the one epoch ends at 5 and 3, the other begins at 6 and 3."""
    return [*rebase(0, (5, 3), (6, 3), 0), ledger(0, 0, start, end, 0) | {"kind": "gap_accepted"} | LATER]


@pytest.mark.parametrize(
    ("which", "change", "expected"),
    [
        (4, {"start_offset": 4}, "gap_accepted of partition 0 [4, 6): version 0 has read [0, 5) before (g)"),
        (4, {"end_offset": 50}, "gap_accepted of partition 0 [5, 50): the topic ends at 9 (g)"),
        (4, {"query_id": "q7"}, "ledger of query q7, gap_accepted of partition 0 [5, 6): the ledger tells of no rebase of that query (g)"),
        (
            4,
            {"topic_id": "another"},
            "gap_accepted of partition 0 [5, 6) names the topic id 'another', which no topic of this name had (g)",
        ),
        (0, {"start_offset": 4, "end_offset": 4}, "ledger of query q1, rebase of partition 0 [4, 4): its batch ends at 5 (g)"),
        (2, {"start_offset": 5, "end_offset": 5}, "ledger of query q2, rebase of partition 0 [5, 5): its first batch begins at 6 (g)"),
    ],
)
def test_what_a_rebase_leaves_in_the_ledger_fits_the_batches(
    good: Scene, tmp_path: Path, which: int, change: dict[str, Any], expected: str
) -> None:
    jumped_over(good)
    begin = replace(good.view(), begin={0: 6, 1: 0})
    good.view = lambda: begin  # type: ignore[method-assign]
    rows = rebased_over(5, 6)
    good.ledger += [*rows[:which], rows[which] | change, *rows[which + 1 :]]
    found = good.judge(tmp_path, excused_ids=frozenset({("C",)})).findings
    assert any(expected in each for each in found), found


@pytest.fixture
def over(good: Scene) -> Scene:
    """A rebase behind batch 0 has jumped over C, and its epoch has written; what it has left in the ledger is for the test to say."""
    jumped_over(good)
    begin = replace(good.view(), begin={0: 6, 1: 0})
    good.view = lambda: begin  # type: ignore[method-assign]
    return good


def found_of(scene: Scene, lake: Path) -> tuple[str, ...]:
    return scene.judge(lake, excused_ids=frozenset({("C",)})).findings


PLANTED: dict[str, tuple[Callable[[Rows], Rows], tuple[str, ...]]] = {
    "all of it twice": (
        lambda rows: rows * 2,
        (
            "the ledger tells 2 times where query q2 began in partition 0 (g)",
            "the ledger tells 2 times where query q2 began in partition 1 (g)",
            "the ledger tells 2 times where query q1 ended in partition 0 at version 0, where 1 later ones began (g)",
            "the ledger tells 2 times where query q1 ended in partition 1 at version 0, where 1 later ones began (g)",
            "ledger of query q2, gap_accepted of partition 0 [5, 6): it is there 2 times (g)",
        ),
    ),
    "where the former epoch ended, of one partition": (
        lambda rows: rows[:1] + rows[2:],
        ("the ledger lacks where query q1 ended in partitions [1] when query q2 began, at version 0 (g)",),
    ),
    "where the former epoch ended": (
        lambda rows: rows[2:],
        ("the ledger lacks where query q1 ended when query q2 began, at version 0 (g)",),
    ),
    "where the new one began, of its first partition": (
        lambda rows: rows[:2] + rows[3:],
        ("the ledger lacks where query q2 began in partition 0, 6 by its batch 1 (g)",),
    ),
    "where the new one began, of its last partition": (
        lambda rows: rows[:3] + rows[4:],
        ("the ledger lacks where query q2 began in partition 1, 3 by its batch 1 (g)",),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_rebase_leaves_twice_or_not_at_all_is_found(over: Scene, tmp_path: Path, name: str) -> None:
    change, expected = PLANTED[name]
    over.ledger += change(rebased_over(5, 6))
    assert found_of(over, tmp_path) == tuple(f"orders: {each}" for each in expected)


def test_a_first_partition_that_begins_at_0_is_told_too(good: Scene, tmp_path: Path) -> None:
    """Which a partition that was added since is not: that one has the highest number."""
    good.commits.append(TargetCommit([], 1, {"0": [0, 9], "1": [0, 3], "2": [0, 0]}, query_id="q2", app_id=app("q2")))
    good.ledger.append(ledger(1, 0, 0, 9, 2, records_read=7, duplicate=2, replayed=5, gap=2) | LATER)
    good.ledger.append(ledger(1, 1, 0, 3, 2, records_read=3, duplicate=1, replayed=2) | LATER)
    left = rebase(1, (9, 3), (0, 0), 1)
    good.ledger += left[:2] + left[3:]
    found = ("orders: the ledger lacks where query q2 began in partition 0, 0 by its batch 1 (g)",)
    assert good.judge(tmp_path).findings == found


@pytest.mark.parametrize("number", [-1, 0])
def test_a_former_epoch_whose_batches_stand_behind_a_hole_has_ended_in_no_partition(
    over: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(Lake, "replaced", property(lambda _: [0]))
    former = ledger(number, -1, 0, 0, 0) | {"kind": "rebase", "topic_id": ""}
    over.ledger += [former, *rebased_over(5, 6)[2:]]
    assert found_of(over, tmp_path) == ()


@pytest.mark.parametrize(("times", "clean"), [(2, True), (3, False)])
def test_two_rebases_of_one_version_tell_twice_where_the_epoch_before_them_ended(
    over: Scene, tmp_path: Path, times: int, clean: bool
) -> None:
    """The first of them has written nothing, and has ended in no partition."""
    ends, begins = rebase(0, (5, 3), (5, 3), 0)[:2], rebased_over(5, 6)[2:]
    unused = [ledger(0, p, at, at, 0) | {"kind": "rebase", "query_id": "q9", "epoch": 1} for p, at in ((-1, 0), (0, 5), (1, 3))]
    over.ledger = [line | THIRD if line["query_id"] == "q2" else line for line in [*over.ledger, *ends * times, *begins]] + unused
    over.commits[1] = replace(over.commits[1], query_id="q3", app_id=app("q3"))
    found = found_of(over, tmp_path)
    assert clean is (found == ()) and all("the ledger tells 3 times where query q1 ended in partition" in each for each in found)


def in_order(lake: Path, *commits: tuple[str, int, Rows]) -> None:
    """The ledger as it came: (query id, pair's number, rows) by commit."""
    for query_id, number, rows in commits:
        pair = CommitProperties(app_transactions=[Transaction(app(query_id, "ledger"), number)])
        append(lake / "shop/orders/ledger", rows, ledger(0, 0, 0, 0, 0), pair)


@pytest.mark.parametrize("made_again", [True, False])
def test_a_ledger_that_was_made_again_need_not_tell_where_the_epochs_before_that_began(
    over: Scene, tmp_path: Path, made_again: bool
) -> None:
    first, second, left = over.ledger[:2], over.ledger[2:], rebased_over(5, 6)
    over.commits.append(TargetCommit([], 1, {"0": [9, 9], "1": [3, 3]}, query_id="q3", app_id=app("q3")))
    third = [ledger(1, p, at, at, 2) | THIRD for p, at in ((0, 9), (1, 3))]
    ended = [ledger(0, p, at, at, 1) | {"kind": "rebase"} for p, at in ((0, 5), (1, 3))]
    ended += [ledger(1, p, at, at, 1) | {"kind": "rebase"} | LATER for p, at in ((0, 9), (1, 3))]
    rebased = [*ended, *(ledger(0, p, at, at, 1) | {"kind": "rebase"} | THIRD for p, at in ((0, 9), (1, 3))), left[-1]]
    over.ledger = []
    over.write(tmp_path)
    # Made again, the ledger has the rows of that rebase first; else what the second one's own run has appended came before them.
    batches = [("q1", 0, first), ("q2", 1, second)]
    in_order(tmp_path, *([("q3", 0, rebased), *batches] if made_again else [*batches, ("q3", 0, rebased)]), ("q3", 1, third))
    found = over.ask(tmp_path, excused_ids=frozenset({("C",)})).findings
    lacks = [f"orders: the ledger lacks where query q2 began in partition {p}, {at} by its batch 1 (g)" for p, at in ((0, 6), (1, 3))]
    assert list(found) == ([] if made_again else lacks)


def test_of_an_epoch_whose_batches_a_restore_may_have_left_out_no_end_is_asked(
    over: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over.ledger += rebased_over(5, 6)[2:]
    monkeypatch.setattr(Lake, "replaced", property(lambda _: [0]))
    assert found_of(over, tmp_path) == ()


@pytest.mark.parametrize("how", ["rows were taken from it", "its log was cleaned up"])
def test_where_the_ledgers_own_log_does_not_tell_what_came_first_no_beginning_is_asked(over: Scene, tmp_path: Path, how: str) -> None:
    over.ledger += rebased_over(5, 6)
    over.write(tmp_path)
    ledgers = DeltaTable(str(tmp_path / "shop/orders/ledger"))
    ledgers.delete("kind = 'rebase' AND query_id = 'q2' AND partition = 0")
    if how == "its log was cleaned up":
        append(tmp_path / "shop/orders/ledger", [], ledger(0, 0, 0, 0, 0), CommitProperties())
        DeltaTable(str(tmp_path / "shop/orders/ledger")).create_checkpoint()
        for version in range(2):
            (tmp_path / f"shop/orders/ledger/_delta_log/{version:020}.json").unlink()
    assert over.ask(tmp_path, excused_ids=frozenset({("C",)})).findings == ()


READ_ON = rebase(1, (9, 3), (9, 3), 1)


@pytest.fixture
def behind(good: Scene) -> Scene:
    """A rebase behind both batches of q1, and its epoch has written; what it has left in the ledger is for the test to say."""
    good.commits.append(TargetCommit([], 1, {"0": [9, 9], "1": [3, 3]}, query_id="q2", app_id=app("q2")))
    good.ledger += [ledger(1, p, at, at, 2) | LATER for p, at in ((0, 9), (1, 3))]
    return good


def test_what_a_rebase_has_told_rightly_passes(behind: Scene, tmp_path: Path) -> None:
    behind.ledger += READ_ON
    behind.judge(tmp_path).assert_clean()


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param(
            rebase(0, (5, 3), (9, 3), 1), "rebase at version 1: it tells of batch 0, and the last one was batch 1 (g)", id="older"
        ),
        pytest.param(rebase(7, (9, 3), (9, 3), 1), "rebase at version 1: it tells of batch 7, and the last one was batch 1 (g)", id="none"),
        pytest.param(
            rebase(1, (9, 3), (9, 3), 0), "rebase at version 0: it tells of batch 1, and the last one was batch 0 (g)", id="version"
        ),
        pytest.param(
            [ledger(1, -1, 0, 0, 1) | {"kind": "rebase", "topic_id": ""}, *READ_ON[2:]],
            "rebase at version 1: it tells of no batch, and the last one was batch 1 (g)",
            id="in no partition",
        ),
        pytest.param(
            [*READ_ON[:2], *(row | {"epoch": 5} for row in READ_ON[2:])], "the ledger calls query q2 epoch 1 and 5 (g)", id="epoch"
        ),
    ],
)
def test_a_rebase_tells_of_the_newest_batch_before_it_and_of_its_own_epoch(
    behind: Scene, tmp_path: Path, told: Rows, expected: str
) -> None:
    behind.ledger += told
    found = behind.judge(tmp_path).findings
    assert any(expected in each for each in found), found


@pytest.mark.parametrize("how", ["RESTORE", "a log that was cleaned up"])
def test_but_not_where_the_log_does_not_tell_which_batches_are_in_force(
    behind: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    behind.ledger += rebase(0, (5, 3), (9, 3), 1)
    behind.write(tmp_path)
    if how == "RESTORE":
        monkeypatch.setattr(Lake, "replaced", property(lambda _: [1]))
    else:
        DeltaTable(str(tmp_path / "shop/orders/target")).create_checkpoint()
        (tmp_path / f"shop/orders/target/_delta_log/{0:020}.json").unlink()
    assert not any("it tells of" in each for each in behind.ask(tmp_path).findings)


def unused(query_id: str, epoch: int, version: int, *, begins: tuple[int, int] = (9, 3)) -> Rows:
    """What a rebase leaves of an epoch that never wrote: where it began."""
    return [ledger(0, p, at, at, version) | {"kind": "rebase", "query_id": query_id, "epoch": epoch} for p, at in enumerate(begins)]


def nothing_of(query_id: str, epoch: int, version: int) -> Rows:
    return [ledger(0, -1, 0, 0, version) | {"kind": "rebase", "query_id": query_id, "epoch": epoch, "topic_id": ""}]


def ends(version: int) -> Rows:
    """Where q1 ended, by its batch of this number and version."""
    return rebase(version, ((5, 3), (9, 3))[version], (0, 0), version)[:2]


@pytest.fixture
def several(good: Scene) -> Scene:
    """Behind batch 0 a rebase to q2, and behind batch 1, which q1 made all the same, those to q3 and q4, of which only q4 has written."""
    own = {"query_id": "q4", "epoch": 3}
    good.commits.append(TargetCommit([], 1, {"0": [9, 9], "1": [3, 3]}, query_id="q4", app_id=app("q4")))
    good.ledger += [ledger(1, p, at, at, 2) | own for p, at in ((0, 9), (1, 3))]
    good.ledger += [*ends(0), *unused("q2", 1, 0, begins=(5, 3))]
    good.ledger += [*ends(1), *nothing_of("q2", 1, 1), *unused("q3", 2, 1)]
    good.ledger += [*ends(1), *nothing_of("q2", 1, 1), *nothing_of("q3", 2, 1), *unused("q4", 3, 1)]
    return good


def test_epochs_that_never_wrote_are_told_by_each_rebase_behind_them(several: Scene, tmp_path: Path) -> None:
    several.judge(tmp_path).assert_clean()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (ends(0), "the ledger tells 2 times where query q1 ended in partition 0 at version 0, where 1 later ones began (g)"),
        (
            nothing_of("q3", 2, 1),
            "the ledger tells 2 times where query q3 ended in partition -1 at version 1, where 1 later ones began (g)",
        ),
    ],
)
def test_of_several_rebases_each_tells_once_of_those_before_it(several: Scene, tmp_path: Path, more: Rows, expected: str) -> None:
    several.ledger += more
    assert f"orders: {expected}" in several.judge(tmp_path).findings


def test_where_nothing_tells_where_an_epoch_began_its_first_partition_is_named_also_if_it_began_at_0(good: Scene, tmp_path: Path) -> None:
    good.commits.append(TargetCommit([], 1, {"0": [0, 9], "1": [0, 3]}, query_id="q2", app_id=app("q2")))
    good.ledger.append(ledger(1, 0, 0, 9, 2, records_read=7, duplicate=2, replayed=5, gap=2) | LATER)
    good.ledger.append(ledger(1, 1, 0, 3, 2, records_read=3, duplicate=1, replayed=2) | LATER)
    assert good.judge(tmp_path).findings == ("orders: the ledger lacks where query q2 began in partition 0, 0 by its batch 1 (g)",)


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        ("none", True),
        ("its records are gone", False),
        ("those of the other partition are gone", False),
        ("it was restored, and back again", False),
        ("it never had any of this partition, and lacks those of the other", True),
        ("the test has deleted its records", True),
    ],
)
def test_what_the_quarantine_has_lost_was_read_in_vain(over: Scene, tmp_path: Path, harm: str, found: bool) -> None:
    """The next rebase counts as read only what was before the first batch with records there, once any was missing."""
    over.ledger += rebased_over(4, 6)
    if harm == "its records are gone":
        over.quarantine.clear()
    if "the other" in harm:
        over.ledger[1]["quarantined"] = 1
    if "never" in harm:
        over.ledger[0]["quarantined"] = 0
    over.write(tmp_path)
    quarantine = DeltaTable(str(tmp_path / "shop/orders/quarantine"))
    if "deleted" in harm or "restored" in harm:
        quarantine.delete("offset = 2")
    if "restored" in harm:
        quarantine.restore(quarantine.version() - 1)
    read = "gap_accepted of partition 0 [4, 6): version 0 has read [0, 5) before (g)"
    verdict = over.ask(tmp_path, excused_ids=frozenset({("C",)}), own_quarantine_versions=range(1, quarantine.version() + 1))
    assert any(read in each for each in verdict.findings) is found


@pytest.mark.parametrize(("epoch", "clean"), [(3, True), (0, False)])
def test_what_an_epoch_after_it_has_read_is_a_gap_for_good_reason(good: Scene, tmp_path: Path, epoch: int, clean: bool) -> None:
    """Of a rebase of a table that was dropped, and made anew by that epoch, whose versions begin at 0 again."""
    good.ledger = [line | {"epoch": epoch} for line in good.ledger]
    good.ledger += [*unused("q0", 1, 1), ledger(0, 0, 0, 4, 1) | {"kind": "gap_accepted", "query_id": "q0", "epoch": 1}]
    found = good.judge(tmp_path).findings
    assert any("gap_accepted of partition 0 [0, 4): version 0 has read [0, 5) before (g)" in each for each in found) is not clean


def test_an_overwrite_of_an_empty_table_leaves_nothing_before_it_in_force(good: Scene, tmp_path: Path) -> None:
    good.write(tmp_path)
    folder = tmp_path / "shop/orders"
    table = DeltaTable(str(folder / "target"))
    table.delete()
    rest = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    write_deltalake(str(folder / "target"), rest, mode="overwrite")
    assert Lake.read(folder, ("order_id",), ()).replaced == [3]
