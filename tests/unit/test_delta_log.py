"""Commits out of a Delta log: whose they are, and what they added (I1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ingest.files import LocalFiles
from ingest.stream.delta_log import AddedFile, DeltaLog
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId, OffsetRange

Put = Callable[..., None]
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
