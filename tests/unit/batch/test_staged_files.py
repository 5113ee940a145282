"""The files of a batch for the snapshot that its commit will name: looked at again, each file opened once, none left behind (I3, I8)."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from ingest.batch import probe, staged_parts
from ingest.batch import staged as staged_module
from ingest.batch.staged import Staged
from ingest.batch.staged_parts import remove_all
from ingest.delta import partition
from ingest.delta.batch_commit import BatchCommit, Upkeep
from ingest.delta.data_file import StagedFile, write_file
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import DataFile, LiveTable
from ingest.delta.put import Operation
from ingest.delta.table_rows import schema_of
from tests.unit.batch.batch_model import Event, Shape, record
from tests.unit.batch.local_desk import FILES, MEMORY, MIXED, ROLLED, SIZES, LocalDesk, Sizes

pytestmark = pytest.mark.unit

IDS = st.lists(st.integers(0, 8), min_size=1, max_size=6)
CHANGES = st.lists(st.one_of(st.tuples(st.just("add"), IDS), st.tuples(st.just("remove"), st.integers(0, 4))), max_size=3)
SHAPES = [Shape(), Shape("STRING", composite=True, partitioned=True)]


def events(ids: Sequence[int]) -> list[Event]:
    return [Event(id, "ab"[id % 2], 0, task=at % 2) for at, id in enumerate(ids)]


def tasks(shape: Shape, desk: LocalDesk, ids: Sequence[int]) -> list[list[Any]]:
    """Records with these ids, of two tasks, after those of the batches before."""
    start = desk.starts[0]
    numbered = [(event.task, record(shape, (0, start + at), event)) for at, event in enumerate(events(ids))]
    return [[each for task, each in numbered if task == number] for number in range(2)]


def change(desk: LocalDesk, shape: Shape, what: str, which: Any) -> None:
    """Somebody else adds rows with these ids, or removes a file."""

    def decide(table: LiveTable) -> Any:
        if what == "remove":
            live = list(table.live.values())
            return Operation("DELETE", {}, {}), [live[which % len(live)].removal(0)] if live else []
        own = {"_source": 0, "_partition": 9, "_offset": 0, "_ingested_at": 0, "_epoch": 1, "_batch": 99, "n": 0}
        rows = [{**own, "id": id if shape.kind == "BIGINT" else f"{'x' * 40}\x0b{id}", "shop": "ab"[id % 2]} for id in which]
        whole = pa.Table.from_pylist(rows, schema_of(table))
        partitioned = ("shop",) if shape.partitioned else ()
        files = partition.write_files(table.path, whole, ("id",), partitioned, "other-")
        return Operation("WRITE", {}, {}), [each.addition() for each in files]

    DirectWriter().unfenced(desk.places.target, BatchCommit(Upkeep(), "t", "events"), decide)


def positions(folder: str, files: Sequence[StagedFile]) -> list[tuple[int, int]]:
    found = []
    for file in files:
        rows = pq.ParquetFile(f"{folder}/{file.path}").read(["_partition", "_offset"])
        assert (rows.num_rows, os.path.getsize(f"{folder}/{file.path}")) == (file.rows, file.size)
        found += list(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
    return sorted(found)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The files of the target that are opened."""
    found: list[str] = []

    def read(folder: str, file: Any, schema: pa.Schema) -> pa.Table:
        found.append(file.path)
        return partition.read(folder, file, schema)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "read", read)
        yield found


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate], deadline=None)
@example(SHAPES[0], FILES, [[1, 2]], [1, 2, 3], [[("remove", 0)], [("add", [3])]])
@given(st.sampled_from(SHAPES), st.sampled_from(SIZES), st.lists(IDS, max_size=3), IDS, st.lists(CHANGES, min_size=1, max_size=2))
def test_another_look_gives_what_a_first_one_would_and_opens_no_file_twice(
    shape: Shape, sizes: Sizes, before: list[list[int]], ids: list[int], changes: list[list[tuple[str, Any]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = LocalDesk(shape.contract(), Path(folder))
        for each in before:
            desk.process(tasks(shape, desk, each), FILES)
        start, target = desk.starts[0], desk.places.target
        staged = desk.staged(tasks(shape, desk, ids), sizes)
        staged.mark_copies()
        first = {id: (0, start + at) for at, id in reversed(list(enumerate(ids)))}
        with opened() as files:
            new: list[StagedFile] = []
            for changed in ([], *changes):
                for what, which in changed:
                    change(desk, shape, what, which)
                live = desk.writer.looked_at(target)
                new = staged.new_files(live)
                held = {int(str(id)[-1]) for file in live.live.values() for id in _ids(target, file.path)}
                assert positions(target, new) == sorted(at for id, at in first.items() if id not in held)
            assert max(Counter(files).values(), default=0) <= len(staged.rows.parts), "each part opens a file once"
        staged.rows.remove(new)
        assert desk.unreferenced() == {f"{target}/{each.path}" for each in new} or sizes.attempts > 1


def _ids(folder: str, path: str) -> list[Any]:
    found: list[Any] = pq.ParquetFile(f"{folder}/{path}").read(["id"])["id"].to_pylist()
    return found


@pytest.mark.parametrize("sizes", [MEMORY, FILES, ROLLED, MIXED], ids=["memory", "files", "rolled", "mixed"])
def test_after_a_commit_each_staged_file_is_in_the_table_or_gone(sizes: Sizes, tmp_path: Path) -> None:
    desk = LocalDesk(SHAPES[1].contract(), tmp_path)
    for ids in ([1, 2, 3], [1, 2, 3, 3], [4, 1, 5, 4, 6]):
        desk.process(tasks(SHAPES[1], desk, ids), sizes)
    assert not desk.unreferenced() and len(desk.rows()) == 6


def test_a_file_that_loses_rows_has_bounds_of_the_rest(tmp_path: Path) -> None:
    """Else later batches would open it in vain, and engines would answer a maximum from a row that is not there."""
    shape = Shape()
    desk = LocalDesk(shape.contract(), tmp_path)
    desk.process([[record(shape, (0, n), Event(id, "a", 0)) for n, id in enumerate((1, 8))]], FILES)
    desk.process([[record(shape, (0, 2 + n), Event(id, "a", 0)) for n, id in enumerate((1, 4, 5, 8))]], FILES)
    files = desk.writer.looked_at(desk.places.target).live.values()
    assert sorted((file.rows, file.least["id"], file.greatest["id"], file.greatest["_offset"]) for file in files) == [
        (2, 1, 8, 1),
        (2, 4, 5, 4),
    ]


def test_a_file_without_statistics_is_opened(tmp_path: Path) -> None:
    """Another engine may write none: a missing bound may hide any value."""
    shape = Shape()
    desk = LocalDesk(shape.contract(), tmp_path)

    def decide(table: LiveTable) -> Any:
        own = {"_source": 0, "_partition": 9, "_offset": 0, "_ingested_at": 0, "_epoch": 1, "_batch": 99, "n": 0, "shop": "a"}
        file = write_file(table.path, pa.Table.from_pylist([{**own, "id": 3}], schema_of(table)), ())
        add = file.addition()
        del add["add"]["stats"]
        return Operation("WRITE", {}, {}), [add]

    DirectWriter().unfenced(desk.places.target, BatchCommit(Upkeep(), "t", "events"), decide)
    desk.process(tasks(shape, desk, [2, 3, 4]), FILES)
    assert [row["id"] for row in desk.rows()] == [2, 4, 3]


def test_a_staged_file_of_another_size_is_not_committed(tmp_path: Path) -> None:
    """A reader would find nothing, or fail, at the end that the commit names."""
    desk = LocalDesk(SHAPES[0].contract(), tmp_path)
    staged = desk.staged(tasks(SHAPES[0], desk, [1, 2]), FILES)
    file = staged.rows.parts[0].file
    assert file is not None
    with (Path(desk.places.target) / file.path).open("ab") as more:
        more.write(b"\0")
    with pytest.raises(OSError, match="were staged"):
        staged.new_files(desk.writer.looked_at(desk.places.target))


def test_removing_a_batch_leaves_the_files_of_other_batches(tmp_path: Path) -> None:
    names = [f"part-00001-00000{number}-{writer}-{uuid.uuid4()}.zstd.parquet" for number in (2, 3) for writer in ("aaaaaaaa", "bbbbbbbb")]
    for name in (*names, f"shop=a/{names[0]}", f"shop=a/{names[1]}", "part-00001-000002-aaaaaaaa-x.crc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    remove_all(str(tmp_path), "part-00001-000002-aaaaaaaa-")
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("part*")}
    assert left == {*names[1:], f"shop=a/{names[1]}", "part-00001-000002-aaaaaaaa-x.crc"}


def test_a_removed_batch_has_no_files_left(tmp_path: Path) -> None:
    shape = SHAPES[1]
    desk = LocalDesk(shape.contract(), tmp_path)
    desk.process(tasks(shape, desk, [1, 2]), FILES)
    staged: Staged = desk.staged(tasks(shape, desk, [1, 2, 3, 4]), FILES)
    staged.new_files(desk.writer.looked_at(desk.places.target))
    assert len(desk.unreferenced()) > 2
    staged.rows.remove()
    staged.refused.remove()
    assert not desk.unreferenced()


@pytest.mark.parametrize("sizes", [MEMORY, FILES, MIXED], ids=["memory", "files", "mixed"])
def test_every_file_is_on_the_disk_before_it_is_named_and_is_written_once_if_nothing_has_changed(
    sizes: Sizes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(staged_parts, "sync", lambda _, names: synced.extend(names))
    shape = SHAPES[1]
    desk = LocalDesk(shape.contract(), tmp_path)
    desk.process(tasks(shape, desk, [1, 2]), sizes)
    assert sorted(synced) == sorted(desk.writer.looked_at(desk.places.target).live)
    synced.clear()
    staged = desk.staged(tasks(shape, desk, [1, 2, 3, 4, 5]), sizes)
    first, second = (staged.new_files(desk.writer.looked_at(desk.places.target)) for _ in range(2))
    assert first == second and sorted(synced) == sorted(each.path for each in first)


@pytest.mark.parametrize("sizes", [MEMORY, FILES], ids=["memory", "files"])
@pytest.mark.parametrize("conflicts", ["batch", "table"])
def test_files_whose_bounds_exclude_the_batch_cost_it_nothing(conflicts: str, sizes: Sizes, tmp_path: Path) -> None:
    """A table gets a file a batch: what is done for each of them makes every batch slower than the one before."""
    shape = replace(SHAPES[0], conflicts=conflicts)
    desk = LocalDesk(shape.contract(), tmp_path)
    for ids in ([0, 1], [2, 3], [4, 5]):
        desk.process(tasks(shape, desk, ids), sizes)
    staged = desk.staged(tasks(shape, desk, [5, 6, 7]), sizes)
    looked_at: list[str] = []

    def probed(ids: pa.Table, files: Sequence[DataFile], target: LiveTable) -> Any:
        looked_at.extend(file.path for file in files)
        return probe.probe(ids, files, target)

    def read(folder: str, file: Any, schema: pa.Schema) -> pa.Table:
        looked_at.append(file.path)
        return partition.read(folder, file, schema)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged_module, "probe", probed)
        patch.setattr(staged_module, "read", read)
        staged.mark_copies()
        target = desk.writer.looked_at(desk.places.target)
        if conflicts == "table":
            staged.compare(target)
        staged.new_files(target)
    (path,) = {*looked_at}
    assert 5 in {int(str(id)[-1]) for id in _ids(desk.places.target, path)}
