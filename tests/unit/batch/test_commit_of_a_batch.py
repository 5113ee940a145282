"""The commit of a batch and its files, if another commit comes first or the store reports errors (I1, I3, I8)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.batch import direct
from ingest.delta import direct_writer
from ingest.delta.batch_commit import BatchCommit, Upkeep
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.put import NotStored, OutcomeUnknown, put
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import LocalFiles
from tests.unit.batch.batch_model import Event, Shape, record
from tests.unit.batch.local_desk import FILES, MEMORY, MIXED, LocalDesk, Record, Sizes
from tests.unit.batch.test_staged_files import change

pytestmark = pytest.mark.unit

SHAPE = Shape(partitioned=True)
BY_SIZE = pytest.mark.parametrize("sizes", [MEMORY, FILES, MIXED], ids=["memory", "files", "mixed"])


def records(*ids: int, start: int = 0) -> list[Record]:
    """Events with these ids; -1 breaks the rule."""
    return [record(SHAPE, (0, start + at), Event(max(id, 0), "ab"[id % 2], min(id, 0))) for at, id in enumerate(ids)]


@pytest.fixture
def desk(tmp_path: Path) -> LocalDesk:
    return LocalDesk(SHAPE.contract(), tmp_path)


def meanwhile(patch: pytest.MonkeyPatch, *others: Callable[[], object]) -> None:
    """Do these one after another, one each time that the batch has decided on its files and before it puts its commit."""
    left, merge = list(others), direct.insertion

    def decided(*arguments: Any) -> Any:
        if left:
            left.pop(0)()
        return merge(*arguments)

    patch.setattr(direct, "insertion", decided)


@BY_SIZE
def test_an_id_that_another_commit_adds_before_ours_is_not_added_again(
    sizes: Sizes, desk: LocalDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.process([records(1, 2, 3)], sizes)
    meanwhile(monkeypatch, lambda: change(desk, SHAPE, "add", [4, 5]), lambda: change(desk, SHAPE, "remove", 0), lambda: None)
    report = desk.process([records(1, 2, 3, start=3), records(4, 5, 6, 7, start=6)], sizes)
    ids = [row["id"] for row in desk.rows()]
    assert len(ids) == len({*ids}) and {*ids} == {*range(1, 8)}, "rows that were removed before the commit come back"
    assert report.inserted + report.duplicate == report.records_read == 7
    assert not desk.unreferenced(), "files that were written for an earlier look are gone"


def test_a_run_that_was_fenced_before_its_commit_adds_nothing_and_leaves_no_files(desk: LocalDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    other = LocalDesk(SHAPE.contract(), Path(desk.places.lake).parent)
    old, desk.table = desk.table, other.table
    desk.writer, fenced = other.writer, desk.writer
    with pytest.raises(RunStopped, match="FENCED"):
        _by(desk, old, fenced).process([records(1, 2, -1)], FILES)
    assert not desk.unreferenced() and not desk.rows() and not desk.quarantine()
    desk.process([records(1, 2, -1)], FILES)
    meanwhile(monkeypatch, lambda: LocalDesk(SHAPE.contract(), Path(desk.places.lake).parent))
    with pytest.raises(RunStopped, match="FENCED"):
        desk.process([records(4, 5, start=3)], FILES)
    assert not desk.unreferenced() and [row["id"] for row in desk.rows()] == [1, 2]


def _by(desk: LocalDesk, table: Any, writer: Any) -> LocalDesk:
    """A desk with the epoch and the writer of an earlier start."""
    earlier = object.__new__(LocalDesk)
    earlier.contract, earlier.places, earlier.table, earlier.writer, earlier._number = desk.contract, desk.places, table, writer, 0
    return earlier


class Broken(LocalFiles):
    """A store without space for commits of one table. `stores`: it stores them all the same, and never tells."""

    def __init__(self, table: str, *, stores: bool) -> None:
        self.table, self.stores = f"/{table}/", stores

    def create(self, path: str, data: bytes, mode: int = 0o666) -> bool:
        if self.table not in path:
            return super().create(path, data, mode)
        if self.stores:
            super().create(path, data, mode)
        raise OSError(errno.ENOSPC, "no space", path)

    def sync_name(self, path: str) -> None:
        if self.table in path:
            raise OSError(errno.EIO, "no answer", path)
        super().sync_name(path)


@BY_SIZE
@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_if_the_store_surely_stored_nothing_the_files_of_the_batch_are_gone(
    table: str, sizes: Sizes, desk: LocalDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.delta.put.PAUSES_S", ())
    desk.writer.files = Broken(table, stores=False)
    with pytest.raises(NotStored):
        desk.process([records(1, 2, -1)], sizes)
    assert not desk.unreferenced() and not desk.rows()
    desk.open()
    desk.process([records(1, 2, -1)], sizes)
    assert (len(desk.rows()), len(desk.quarantine())) == (2, 1)


@BY_SIZE
@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_if_the_outcome_of_a_commit_is_unknown_the_files_that_it_names_stay(
    table: str, sizes: Sizes, desk: LocalDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start finds the commit and goes on behind it, or rolls it back."""
    monkeypatch.setattr("ingest.delta.put.PAUSES_S", ())
    desk.writer.files = Broken(table, stores=True)
    with pytest.raises(OutcomeUnknown):
        desk.process([records(1, 2, -1)], sizes)
    assert (len(desk.rows()), len(desk.quarantine())) == (2 if table == "target" else 0, 1)
    desk.open()
    desk.process([records(1, 2, -1)[desk.starts[0] :]], sizes)
    assert (len(desk.rows()), len(desk.quarantine())) == (2, 1) and not desk.unreferenced()


@pytest.mark.parametrize("table", ["quarantine", "target"])
def test_a_staged_file_that_a_vacuum_has_taken_meanwhile_is_not_committed(
    desk: LocalDesk, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """A driver that was stopped for longer than VACUUM keeps files goes on: its commit would make the table unreadable."""
    path = getattr(desk.places, table)

    def late(files: Any, at: Any, *more: Any) -> Any:
        if at.path == path:
            monkeypatch.setattr(direct_writer, "put", put)
            for each in desk.unreferenced():
                Path(each).unlink()
            DirectWriter().unfenced(
                path, BatchCommit(Upkeep(), "t", "events"), lambda _: (direct_writer.NOTHING, ())
            )  # VACUUM's own commit comes first, too
        return put(files, at, *more)

    monkeypatch.setattr(direct_writer, "put", late)
    with pytest.raises(FileNotFoundError):
        desk.process([records(1, 2, -1)], FILES)
    assert not desk.rows() and (table == "target" or not desk.quarantine()), "both can be read"
