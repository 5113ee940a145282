"""The swap of a rebuild by the direct writer, without Spark: one commit a table, and a crash anywhere that the same command mends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta import direct_writer, put
from ingest.delta.batch_commit import BatchCommit, Replay, Swap
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.kafka.offsets import Partition
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.recovery.epoch import open_epoch
from ingest.recovery.look_back import LookBack
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.repair.shadow import CARRIED, EPOCHS_AHEAD, shadow_of
from ingest.repair.swap import Swapped, refuse_swapped, swap
from ingest.runtime import crash_points
from ingest.runtime.errors import Refused
from ingest.runtime.files import LocalFiles
from ingest.verify.verdict import verify
from tests.unit.batch.batch_model import Shape
from tests.unit.batch.local_desk import FILES, PARTITIONS, PLACES, SECOND, LocalDesk, Record

pytestmark = pytest.mark.unit
EARLIEST = Seeking(Aim("earliest"), True, "--to earliest")
SHAPE = Shape(partitioned=True)


class Killed(BaseException):
    """The process dies."""


def event(offset: int, id: int, n: int = 0) -> Record:
    return Record(offset % PARTITIONS, offset, json.dumps({"id": id, "shop": "a b"[id % 3 :: 3] or "c", "n": n}).encode())


RECORDS = [*(event(at, at) for at in range(6)), Record(0, 6, b"{"), event(7, 1), event(8, 8, n=-1)]


class Scene:
    """A table in a folder, and its shadow, which has read the same records and one more."""

    def __init__(self, folder: Path) -> None:
        self.desk = LocalDesk(SHAPE.contract(), folder)
        self.places, self.contract = self.desk.places, self.desk.contract
        self.firsts: dict[Partition, int] = {}

    def fill(self, *, expired: bool = False) -> None:
        """`expired`: Kafka has none of the records any more, so that the shadow reads nothing."""
        for batch in (RECORDS[:4], RECORDS[4:]):
            self.desk.process([batch], FILES)
        self.desk.table.epoch.finish()
        if expired:
            self.firsts = {PLACES[number]: end for number, end in self.desk.starts.items()}
        writer = DirectWriter(self.contract)

        def carry(at_end: BatchCommit, look_back: LookBack) -> Commit:
            return writer.post(look_back.target, replace(at_end, case=Replay(CARRIED)))

        own = self.desk.table.epoch.writer
        more: dict[str, Any] = {"floor": own.epoch + EPOCHS_AHEAD, "writer": writer, "recorded": own.sources}
        open_epoch(None, self.contract, shadow_of(self.places), self.ask, EARLIEST, **more).finish()
        open_epoch(None, self.contract, shadow_of(self.places), self.ask, statement=carry, writer=writer).finish()
        if expired:
            return
        shadow = LocalDesk(self.contract, Path(self.places.lake).parent)
        shadow.places = shadow_of(self.places)
        shadow.open()
        shadow.process([[*RECORDS, event(9, 9)]], FILES)  # and its run dies before it writes the ledger

    def ask(self, *more: str) -> tuple[TopicState, ...]:
        """The desk's topics, and `more`, which are empty."""
        topics = (self.contract.source.topic, SECOND)
        firsts = [{of[1]: self.firsts.get(of, 0) for of in PLACES if of[0] == number} for number in range(len(topics))]
        bounds = [{p: (first, 1_000_000) for p, first in each.items()} for each in firsts] + [{0: (0, 0)} for _ in more]
        return tuple(TopicState(TopicId(name, f"{name}-id"), each) for name, each in zip((*topics, *more), bounds, strict=True))

    def swap(self, **more: Any) -> Swapped:
        return swap(DirectWriter(self.contract), self.contract, self.places, more.pop("ask", self.ask), **more)

    def ids(self, version: int | None = None) -> list[int]:
        return sorted(DeltaTable(self.places.target, version=version).to_pyarrow_table()["id"].to_pylist())

    def quarantined(self) -> list[tuple[int, int]]:
        return sorted((row["offset"], row["epoch"]) for row in self.desk.quarantine())

    def findings(self) -> list[str]:
        return list(map(str, verify(DataFusion(), self.contract, self.places).findings))

    def log(self, table: str = "target") -> DeltaLog:
        return DeltaLog(LocalFiles(), f"{self.places.root}/{table}")

    def added(self, root: str) -> list[dict[str, Any]]:
        """The add actions of the newest commit with files."""
        for path in sorted(Path(root, "_delta_log").glob("*.json"), reverse=True):
            actions = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            if found := [action["add"] for action in actions if "add" in action]:
                return found
        raise AssertionError("no files")

    def goes_on(self) -> None:
        """The swap is complete: rows, quarantine, balance, a next run, and no file that no commit names."""
        assert self.ids() == [0, 1, 2, 3, 4, 5, 9]
        assert [offset for offset, _ in self.quarantined()] == [6, 8] and all(epoch > EPOCHS_AHEAD for _, epoch in self.quarantined())
        assert self.findings() == []
        assert self.desk.unreferenced() == set()
        self.desk.open()
        report = self.desk.process([[event(12, 12), event(13, 3)]], FILES)
        assert (report.inserted, report.duplicate) == (1, 1)
        self.desk.table.epoch.finish()
        assert self.findings() == []


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    found = Scene(tmp_path / "filled")
    found.fill()
    return found


def test_one_commit_replaces_all_files_by_the_shadows_and_time_travel_reaches_the_old_rows(scene: Scene) -> None:
    live = {file.path for file in scene.desk.writer.looked_at(scene.places.target).live.values()}
    of_shadow = scene.added(shadow_of(scene.places).target)
    done = scene.swap()
    assert (done.rows_before, done.rows_after, done.lost, done.findings_before) == (6, 7, 0, ())
    commit = next(each for each in scene.log().newest_first() if each.added)
    assert commit.version > done.version_before
    assert {path for path, _ in commit.removed} == live
    assert commit.batch_commit is not None and commit.batch_commit.snapshots is not None and isinstance(commit.batch_commit.case, Swap)
    assert (commit.batch_commit.id.number, commit.batch_commit.snapshots.target.version) == (1, commit.version - 1)
    assert (commit.operation, commit.parameters["mode"], commit.metrics["numOutputRows"]) == ("WRITE", "Overwrite", "7")
    mine = scene.added(scene.places.target)
    assert sorted(each["stats"] for each in mine) == sorted(each["stats"] for each in of_shadow)
    assert sorted(each["size"] for each in mine) == sorted(each["size"] for each in of_shadow)
    assert scene.ids(done.version_before) == [0, 1, 2, 3, 4, 5]
    scene.goes_on()


def test_the_same_command_completes_a_swap_that_died_behind_any_of_its_commits(scene: Scene, tmp_path: Path) -> None:
    folder, at, died = Path(scene.places.lake).parent, 0, True
    while died:
        at += 1
        one = Scene(Path(shutil.copytree(folder, tmp_path / str(at))))
        left = at

        def dying(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            outcome, left = put.put(*arguments, **more), left - 1
            if left == 0:
                raise Killed
            return outcome

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(direct_writer, "put", dying)
            try:
                one.swap()
                died = False
            except Killed:
                assert one.swap().findings_before == (), at
        one.goes_on()
    assert at > 6, "fences, two overwrites and the ledger"


@pytest.mark.parametrize("at", ["quarantine", "target"])
def test_a_swap_killed_between_its_links_and_their_commit_is_completed(scene: Scene, at: str) -> None:
    command = [sys.executable, "-m", "tests.unit.repair.test_swap", str(Path(scene.places.lake).parent), at]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert scene.desk.unreferenced(), "the links are there"
    scene.swap()
    scene.goes_on()


def die_at(table: str) -> Callable[..., Any]:
    """A `put` that kills the process before a swap's commit on this table."""

    def dying(files: Any, live: Any, *arguments: Any, **more: Any) -> Any:
        if live.path.endswith(table) and any("remove" in action for action in arguments[-1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return put.put(files, live, *arguments, **more)

    return dying


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_row_that_somebody_adds_after_the_first_look_is_judged_too(scene: Scene, accept_loss: bool) -> None:
    asked = 0

    def ask() -> tuple[TopicState, ...]:
        nonlocal asked
        asked += 1
        if asked == 3:  # behind the first epoch of the swap
            row = DeltaTable(scene.places.target).to_pyarrow_table().slice(0, 1)
            write_deltalake(scene.places.target, row.set_column(0, "id", [[99]]).cast(row.schema), mode="append")
        return scene.ask()

    if accept_loss:
        assert scene.swap(ask=ask, accept_loss=True).lost == 1
        scene.goes_on()
        return
    before = scene.quarantined()
    with pytest.raises(Refused, match="1 rows and quarantined records") as error:
        scene.swap(ask=ask)
    assert error.value.code == "SHADOW_LACKS"
    assert (scene.ids(), scene.quarantined()) == ([0, 1, 2, 3, 4, 5, 99], before)


@pytest.mark.parametrize(("state", "offset"), [("open", 0), ("open", 6), ("dropped", 0)])
def test_an_open_record_that_only_the_old_quarantine_has_is_not_lost_silently(scene: Scene, state: str, offset: int) -> None:
    """Compaction has removed it from Kafka before the shadow came to it. What somebody has dropped may go."""
    record = DeltaTable(scene.places.quarantine).to_pyarrow_table().slice(0, 1)
    # Of the first topic, the shadow has a row and a record at these positions.
    for name, value in {"source": 1, "partition": 0, "offset": offset, "state": state, "reason_code": "malformed_json"}.items():
        at = record.column_names.index(name)
        record = record.set_column(at, record.schema.field(at), pa.array([value], record.schema.field(at).type))
    write_deltalake(scene.places.quarantine, record, mode="append")
    if state == "dropped":
        scene.swap()
        scene.goes_on()
        return
    with pytest.raises(Refused, match="1 rows and quarantined records") as error:
        scene.swap()
    assert error.value.code == "SHADOW_LACKS" and f" {SECOND}/0:{offset} (" in error.value.found
    assert scene.swap(accept_loss=True).lost == 1
    scene.goes_on()


def test_a_row_that_somebody_adds_just_before_the_commit_is_judged_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check belongs to the snapshot that the statement replaces: after the quarantine's overwrite, and again if it was outrun."""
    begun: list[int] = []

    def outrun(files: Any, live: Any, *arguments: Any, **more: Any) -> Any:
        if live.path.endswith("target") and not begun and any("remove" in action for action in arguments[-1]):
            begun.append(99)
            row = DeltaTable(scene.places.target).to_pyarrow_table().slice(0, 1)
            write_deltalake(scene.places.target, row.set_column(0, "id", [begun]).cast(row.schema), mode="append")
        return put.put(files, live, *arguments, **more)

    monkeypatch.setattr(direct_writer, "put", outrun)
    assert scene.swap(accept_loss=True).lost == 1
    scene.goes_on()


def test_between_the_two_commits_a_start_is_refused_and_a_seek_mends_the_table_too(scene: Scene) -> None:
    kill_at("swap_quarantine", scene)
    with pytest.raises(Refused, match="--swap` completes it") as error:
        scene.desk.open()
    assert error.value.code == "QUARANTINE_REWOUND"
    seeking = Seeking(Aim("table"), True, "--to table")
    open_epoch(None, scene.contract, scene.places, scene.ask, seeking, writer=DirectWriter(scene.contract)).finish()
    scene.desk.open()
    scene.desk.process([[each for each in RECORDS if each.offset >= scene.desk.starts[each.partition]]], FILES)
    scene.desk.table.epoch.finish()
    assert scene.findings() == []
    with pytest.raises(Refused, match="SHADOW_OLD"):
        scene.swap()


def test_behind_the_targets_commit_nothing_but_the_swap_itself_may_go_on(scene: Scene) -> None:
    kill_at("swap_target", scene)
    with pytest.raises(Refused, match="completes it"):
        refuse_swapped(None, scene.places)
    scene.swap()
    scene.goes_on()


def test_a_shadow_whose_last_batch_was_cut_off_is_read_on_first(scene: Scene) -> None:
    """I4: its quarantined records would count as those of the rebuild, and be there twice when they are read again."""
    shadow = LocalDesk(scene.contract, Path(scene.places.lake).parent)
    shadow.places = shadow_of(scene.places)
    shadow.open()
    kill_at("after_quarantine", scene, lambda: shadow.process([[Record(1, 13, b"{")]], FILES))
    with pytest.raises(Refused, match=r"SHADOW_UNBALANCED.*cut off"):
        scene.swap()
    shadow.open()
    scene.swap()
    scene.goes_on()


def test_a_shadow_from_which_somebody_deleted_rows_is_refused(scene: Scene) -> None:
    """I4: the table's log would not have the DELETE, so that its rows would be missing."""
    DeltaTable(shadow_of(scene.places).target).delete("id = 9")
    with pytest.raises(Refused, match=r"SHADOW_UNBALANCED.*DELETE of 1 rows"):
        scene.swap()


def test_the_books_begin_anew_with_a_shadow_that_has_read_nothing(tmp_path: Path) -> None:
    """I4."""
    scene = Scene(tmp_path)
    scene.fill(expired=True)
    assert scene.swap(accept_loss=True).lost == 8
    assert (scene.ids(), scene.quarantined(), scene.findings()) == ([], [], [])


def test_a_shadow_that_numbers_the_topics_otherwise_is_refused(scene: Scene) -> None:
    """I6: a number means one topic. The shadow found x before anybody found y, and the table finds both at the swap."""
    open_epoch(None, scene.contract, shadow_of(scene.places), lambda: scene.ask("x"), writer=DirectWriter(scene.contract)).finish()
    before = scene.quarantined()
    with pytest.raises(Refused, match=r"SHADOW_OLD.* topics .*, y, x, but its shadow .*, x: "):
        scene.swap(ask=lambda: scene.ask("y", "x"))
    assert (scene.ids(), scene.quarantined(), scene.findings()) == ([0, 1, 2, 3, 4, 5], before, [])


def test_a_topic_that_the_table_has_read_further_is_named(scene: Scene) -> None:
    scene.desk.open()
    scene.desk.process([[event(11, 11)]], FILES)
    with pytest.raises(Refused, match=rf"SHADOW_BEHIND.*up to {SECOND}/0:12\."):
        scene.swap()


def kill_at(point: str, scene: Scene, do: Callable[[], object] | None = None) -> None:
    def at(reached: str, *_: object) -> None:
        if reached == point:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(crash_points, "at", at)
        (do or scene.swap)()


def _main(arguments: Sequence[str]) -> None:
    """Swap in a process of its own, which kills itself."""
    folder, table = arguments
    vars(direct_writer)["put"] = die_at(table)
    Scene(Path(folder)).swap()


if __name__ == "__main__":
    _main(sys.argv[1:])
