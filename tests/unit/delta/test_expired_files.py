"""VACUUM by the direct writer deletes what no version of the retention needs, and nothing that a batch in progress has written."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta import expired_files
from ingest.delta.compaction import compact
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.expired_files import expired, removable
from ingest.delta.merge_groups import whole
from ingest.runtime.errors import InvalidInput
from tests.unit.delta.test_compaction import ABOUT, Scene

pytestmark = pytest.mark.unit

DAY_S = 86_400


def old(path: Path) -> None:
    os.utime(path, (1, 1))


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize(
    ("kept_s", "properties", "days"),
    [
        (None, {}, 7),
        (None, {"delta.deletedFileRetentionDuration": "interval 3 days"}, 3),
        (None, {"delta.deletedFileRetentionDuration": "interval 0 seconds"}, 1),  # a batch in progress needs its files
        (DAY_S, {}, 1),
        (8 * DAY_S, {"delta.deletedFileRetentionDuration": "interval 0 seconds"}, 8),  # a checkpoint forgets the removals at once
    ],
)
def test_a_file_stays_as_long_as_a_version_of_the_retention_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: bool, kept_s: float | None, properties: dict[str, str], days: int
) -> None:
    """It counts when the file was removed, not when it was written. The removals are in the log, or in its checkpoint."""
    one = Scene(tmp_path, range(0, 30, 3), ["day"], properties)
    replaced = {f"{one.path}/{name}" for name in one.on_disk()}
    compact(DirectWriter(), one.path, ABOUT, whole)
    if checkpoint:
        DeltaTable(one.path).create_checkpoint()
        one.add(100)
    stray, young = (Path(one.path) / f"day=a/{name}.parquet" for name in ("left-by-a-failed-write", "of-a-batch-in-progress"))
    for path in (stray, young):
        path.write_bytes(b"x" * 10)
    for path in Path(one.path).rglob("*.parquet"):
        if path != young:
            old(path)
    before = one.rows()
    assert expired(DirectWriter(), one.path, kept_s).sizes == {str(stray): 10}
    now = time.time()
    for later, gone in ((days - 0.1, {str(stray)}), (days + 0.1, {str(stray), str(young), *replaced})):
        monkeypatch.setattr(expired_files, "time", SimpleNamespace(time=lambda later=later: now + later * DAY_S))
        found = expired(DirectWriter(), one.path, kept_s)
        assert set(found.sizes) == gone
    writer = DirectWriter()
    writer.delete_files(one.path, ABOUT, [*found.sizes], sizeOfDataToDelete=found.bytes)
    assert one.rows() == before and one.on_disk() == {file.path for file in one.live()}
    operations = [DeltaTable(one.path).history(2)[at]["operation"] for at in (1, 0)]
    assert operations == ["VACUUM START", "VACUUM END"]
    assert not expired(writer, one.path, kept_s).sizes


def test_a_retention_that_only_spark_can_read_is_left_to_it(tmp_path: Path) -> None:
    one = Scene(tmp_path, properties={"delta.deletedFileRetentionDuration": "interval 1 month 2 days"})
    with pytest.raises(InvalidInput, match=r"DIRECT_UNFIT.*1 month"):
        expired(DirectWriter(), one.path, None)


def test_a_dry_run_counts_the_same_files(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), pa.table({"n": [1]}))
    write_deltalake(str(path), pa.table({"n": [2]}), mode="overwrite")
    (path / "left-by-a-failed-write.parquet").write_bytes(b"x" * 10)
    old(path / "left-by-a-failed-write.parquet")
    assert removable(str(path), None).sizes == removable(str(path), 7 * DAY_S).sizes == {"left-by-a-failed-write.parquet": 10}
    assert len(removable(str(path), 0).sizes) == 2
    assert len(list(path.glob("*.parquet"))) == 3, "nothing was deleted"
