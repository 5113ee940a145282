"""Commits out of a Delta log: whose they are, and what they added (I1)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.errors import Refused
from ingest.files import LocalFiles
from ingest.stream.delta_log import AddedFile, DeltaLog
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId, OffsetRange

Put = Callable[..., None]


class Counted(LocalFiles):
    """The disk, and how often a folder was listed."""

    listings = 0

    def names(self, folder: str) -> list[str]:
        self.listings += 1
        return super().names(folder)


MARK = Mark("shop", "orders", BatchId("q-1", 7), 0, "hash", "orders", "topic-id", (OffsetRange(0, 5, 9),), ())


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return DeltaLog(LocalFiles(), str(tmp_path))


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def write(version: int, *, mark: Mark | None = None, pair: tuple[str, int] | None = None, actions: tuple[Any, ...] = ()) -> None:
        info = {"timestamp": 1_735_787_100_123, "operation": "MERGE", "userMetadata": mark and mark.to_json()}
        lines: list[Any] = [{"commitInfo": info}, *actions]
        if pair:
            lines.append({"txn": {"appId": pair[0], "version": pair[1], "lastUpdated": 1}})
        folder = tmp_path / "_delta_log"
        folder.mkdir(exist_ok=True)
        (folder / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)) + "\n")

    return write


def test_a_commit_is_ours_only_with_both_metadata_and_pair(log: DeltaLog, put: Put) -> None:
    """I1: an auto-compaction's OPTIMIZE carries the session's metadata, a commit of another table's query its pair."""
    put(0, mark=MARK, pair=(MARK.app_id("target"), 7))
    put(1, mark=MARK)
    put(2, pair=(MARK.app_id("target"), 7))
    put(3, mark=MARK, pair=(MARK.app_id("target"), 8))
    put(4, mark=MARK, pair=("oncelake/shop/orders/q-2/target", 7))
    put(5, mark=MARK, pair=(MARK.app_id("quarantine"), 7))
    put(6)
    assert [commit.mark for commit in log.since(-1)] == [MARK, None, None, None, None, MARK, None]


def test_added_files_tell_their_rows_and_partition(log: DeltaLog, put: Put) -> None:
    """I4: figures come from numRecords; where a writer kept none, it says so."""
    stats = json.dumps({"numRecords": 3})
    put(
        0,
        actions=(
            {"add": {"path": "day=2024-05-01/part%20a.parquet", "stats": stats, "partitionValues": {"day": "2024-05-01"}}},
            {"add": {"path": "b.parquet", "stats": None, "partitionValues": {}}},
            {"add": {"path": "c.parquet"}},
            {"remove": {"path": "d.parquet", "stats": stats}},
        ),
    )
    commit = log.commit(0)
    assert commit.added == (
        AddedFile("day=2024-05-01/part a.parquet", 3, {"day": "2024-05-01"}),
        AddedFile("b.parquet", None, {}),
        AddedFile("c.parquet", None, {}),
    )
    assert commit.committed_at == datetime(2025, 1, 2, 3, 5, 0, 123000, UTC)


def test_only_commit_files_count_as_versions(log: DeltaLog, put: Put, tmp_path: Path) -> None:
    assert not log.exists()
    for version in (3, 20, 100):
        put(version)
    for name in (
        f"{20:020}.checkpoint.parquet",
        f"{20:020}.crc",
        "_last_checkpoint",
        f".{21:020}.json.tmp",
        "21.json",
        f"{1:020}.{3:020}.compacted.json",
    ):
        (tmp_path / "_delta_log" / name).write_text("")
    assert log.exists()
    assert log.versions() == [3, 20, 100]
    assert [c.version for c in log.newest_first()] == [100, 20, 3]
    assert [c.version for c in log.since(20)] == [100]
    with pytest.raises(FileNotFoundError):
        log.commit(21)


@pytest.mark.parametrize("there", [(0, 1, 3), (1, 2), (0, 3, 4)])
def test_a_log_with_a_hole_is_refused_by_the_commit_that_it_lacks(log: DeltaLog, put: Put, there: tuple[int, ...]) -> None:
    """Delta does not open such a table, and says so only when a batch is at hand."""
    for version in there:
        put(version)
    lacking = min(set(range(max(there))) - {*there})
    with pytest.raises(Refused, match=rf"LOG_TORN.*lacks the commit of version {lacking}, and goes on to version {max(there)}"):
        log.state()


@pytest.mark.parametrize("data", [b'{"commitInfo": {"timest', b"\xff\xfe{}"])
def test_a_file_of_the_log_that_is_cut_off_or_no_json_is_named(log: DeltaLog, put: Put, tmp_path: Path, data: bytes) -> None:
    put(0)
    put(1)
    file = tmp_path / "_delta_log" / f"{1:020}.json"
    file.write_bytes(data)
    for asked in (log.state, lambda: log.since(0), lambda: log.commit(1)):
        with pytest.raises(Refused, match=rf"LOG_TORN: {file} is not in the format"):
            asked()


@pytest.mark.parametrize("name", ["checkpoint.parquet", "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"])
def test_a_checkpoint_of_the_log_that_is_empty_is_none_and_one_that_is_damaged_is_named(
    log: DeltaLog, put: Put, tmp_path: Path, name: str
) -> None:
    """A disk that was full leaves the one, and Delta takes no notice of it; the other ended a start as a bug of ours."""
    put(0, actions=({"metaData": {"id": "t"}},))
    put(1)
    file = tmp_path / "_delta_log" / f"{1:020}.{name}"
    file.write_bytes(b"")
    state = log.state()
    assert state is not None and (state.version, state.id) == (1, "t")
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(Refused, match=rf"LOG_TORN: {file} is not in the format"):
        log.state()


def test_what_a_checkpoint_of_the_log_holds_may_be_gone(put: Put, tmp_path: Path) -> None:
    folder = tmp_path / "_delta_log"
    for version in (2, 5, 6):
        put(version)
    table = pa.table(
        {"metaData": pa.array([{"id": "t"}]), "txn": pa.array([None], pa.struct({"appId": pa.string(), "version": pa.int64()}))}
    )
    pq.write_table(table, folder / f"{5:020}.checkpoint.parquet")
    log = DeltaLog(LocalFiles(), str(tmp_path))
    state = log.state()
    assert state is not None and (state.version, state.id) == (6, "t")
    put(8)
    with pytest.raises(Refused, match=r"LOG_TORN.*lacks the commit of version 7"):
        log.state()


def test_a_checkpoint_of_the_policy_v2_is_json_and_holds_what_was_before_it(put: Put, tmp_path: Path) -> None:
    """Where Delta has cleaned up the log behind it, no commit is missing, and the pairs are known (I2)."""
    put(5, pair=("of the one behind it", 3))
    put(6, pair=("of another", 4))
    told: list[Any] = [{"checkpointMetadata": {"version": 5}}, {"metaData": {"id": "t", "configuration": {"a": "b"}}}]
    told += [{"txn": {"appId": "of before", "version": 2}}, {"sidecar": {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}}]
    name = f"{5:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (tmp_path / "_delta_log" / name).write_text("\n".join(map(json.dumps, told)))
    log = DeltaLog(LocalFiles(), str(tmp_path))
    state = log.state()
    assert state is not None and (state.version, state.id, state.properties) == (6, "t", {"a": "b"})
    assert state.pairs == {"of before": 2, "of another": 4} and log.versions() == [5, 6]


def test_a_commit_that_was_written_while_the_folder_was_listed_is_no_hole(put: Put, tmp_path: Path) -> None:
    for version in (0, 1, 2):
        put(version)

    class Late(LocalFiles):
        def names(self, folder: str) -> list[str]:
            return [name for name in super().names(folder) if name != f"{1:020}.json"]

    state = DeltaLog(Late(), str(tmp_path)).state()
    assert state is not None and state.version == 2


@pytest.fixture
def files() -> Counted:
    return Counted()


@pytest.fixture
def followed(files: Counted, tmp_path: Path, put: Put) -> DeltaLog:
    """A log of four commits that was looked at."""
    for version in range(4):
        put(version)
    log = DeltaLog(files, str(tmp_path))
    assert log.newest() == 3
    assert files.listings == 1
    return log


def test_new_commits_are_asked_for_by_name(followed: DeltaLog, files: Counted, put: Put) -> None:
    """A log of 20,000 commits takes 0.1 s to list: nothing that a batch does may list it again."""
    assert followed.since(3) == []
    put(4)
    put(5)
    assert followed.newest() == 5
    assert [c.version for c in followed.since(3)] == [4, 5]
    assert [c.version for c in followed.newest_first()] == [5, 4, 3, 2, 1, 0]
    assert files.listings == 1


def test_a_table_made_again_is_seen_whatever_version_it_has(followed: DeltaLog, put: Put, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "_delta_log")
    assert followed.newest() == -1
    assert followed.since(3) == []
    put(0)
    assert followed.newest() == 0
    assert [c.version for c in followed.newest_first()] == [0]
    for version in range(1, 7):
        put(version)
    shutil.rmtree(tmp_path / "_delta_log")
    put(0, mark=MARK, pair=(MARK.app_id("target"), 7))
    put(6)  # another file under the name of the newest that was seen
    put(9)
    assert followed.newest() == 9
    assert [c.version for c in followed.newest_first()] == [9, 6, 0]


def test_commits_that_were_cleaned_up_hide_none_behind_them(followed: DeltaLog, put: Put, tmp_path: Path) -> None:
    """Delta removes what a checkpoint holds; here all that was seen and more, while the log was not looked at."""
    for version in range(4, 12):
        put(version)
    for version in range(9):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    assert followed.newest() == 11
    assert [c.version for c in followed.since(3)] == [9, 10, 11]
    assert [c.version for c in followed.newest_first()] == [11, 10, 9]


def test_a_checkpoint_ahead_of_the_newest_commit_found_asks_for_a_listing(followed: DeltaLog, put: Put, tmp_path: Path) -> None:
    """A clean-up that could not remove the very commit that was seen last."""
    put(9)
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version": 8, "size": 3}')
    assert followed.newest() == 9
    assert [c.version for c in followed.since(3)] == [9]
