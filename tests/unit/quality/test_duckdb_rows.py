"""DuckDB's views of a Delta table have the rows that Delta's protocol says, whatever its files look like."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta.delta_log import DeltaLog
from ingest.quality import duckdb_rows as module
from ingest.quality import gx
from ingest.quality.duckdb_rows import DuckDBRows
from ingest.quality.scope import Slice
from ingest.runtime.files import LocalFiles

pytestmark = pytest.mark.unit

NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
PROJECT = Path(__file__).parents[3]


@contextmanager
def rows_of(path: Path, *names: str) -> Iterator[DuckDBRows]:
    state = DeltaLog(LocalFiles(), str(path)).state()
    assert state is not None
    rows = DuckDBRows(str(path), state, names)
    try:
        yield rows
    finally:
        rows.close()


def read(path: Path, *names: str, slices: Sequence[Slice] | None = None) -> list[dict[str, Any]]:
    with rows_of(path, *names) as rows:
        found: Any = rows.connection.execute(f'FROM "{rows.view("v", slices)}" ORDER BY id').to_arrow_table()
        return list(found.to_pylist())


def test_a_column_or_field_that_an_older_file_lacks_is_null(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": ["a"], "st": [{"x": 1}]}))
    newer = pa.table({"id": ["b"], "st": [{"x": 2, "y": "t"}], "at": pa.array([NOON], pa.timestamp("us", "UTC")), "n": [5]})
    write_deltalake(tmp_path, newer, mode="append", schema_mode="merge")
    first, second = read(tmp_path, "id", "st", "at", "N", "st.y")
    assert first == {"id": "a", "st": {"x": 1, "y": None}, "at": None, "N": None, "st.y": None}
    assert second == {"id": "b", "st": {"x": 2, "y": "t"}, "at": NOON.replace(tzinfo=None), "N": 5, "st.y": "t"}
    DeltaTable(tmp_path).delete()
    assert read(tmp_path, "id") == []


def test_partition_columns_have_their_values_from_the_log(tmp_path: Path) -> None:
    """Their folders only repeat the values, escaped."""
    days, texts = [date(2024, 2, 29), None, date(1, 1, 1)], ["a/b=c", None, "1"]
    at = pa.array([NOON, None, NOON], pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path, pa.table({"id": ["a", "b", "c"], "day": days, "p": texts, "at": at}), partition_by=["day", "p", "at"])
    assert [(row["day"], row["p"], row["at"]) for row in read(tmp_path, "id", "day", "p", "at")] == [
        (days[0], "a/b=c", NOON.replace(tzinfo=None)),
        (None, None, None),
        (days[2], "1", NOON.replace(tzinfo=None)),
    ]


@pytest.mark.parametrize("name", ["a*b?[c]", "#1: [x] {table}", "it's", "p=1 x y", "ümlaut"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    for each in ("a", "b"):
        write_deltalake(tmp_path / "axb1c", pa.table({"id": [each]}), mode="append")
    shutil.copytree(tmp_path / "axb1c", tmp_path / name)
    write_deltalake(tmp_path / "axb1c", pa.table({"id": ["of another table"]}), mode="append")
    assert [row["id"] for row in read(tmp_path / name, "id")] == ["a", "b"]


def test_only_files_that_can_have_rows_of_the_slices_are_read_and_only_their_rows_are_seen(tmp_path: Path) -> None:
    for epoch, batches in ((1, (2, 3)), (1, (4, 9)), (2, (2, 2))):
        ids = [f"{epoch} {batch}" for batch in batches]
        rows = {"id": ids, "_epoch": pa.array([epoch] * 2, pa.int32()), "_batch": pa.array(batches, pa.int64())}
        write_deltalake(tmp_path, pa.table(rows), mode="append")
    slices = (Slice(1, 3, 3), Slice(2, 2, 5))
    assert [row["id"] for row in read(tmp_path, "id", slices=slices)] == ["1 3", "2 2", "2 2"]
    with rows_of(tmp_path) as found:
        assert (found.most(None), found.most(slices), len(found.paths(slices))) == (6, 4, 2)
        assert found.most((Slice(3, 1, 9),)) == 0
    assert read(tmp_path, "id", slices=(Slice(3, 1, 9),)) == []


def test_the_rows_of_many_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("a", "b"):
        write_deltalake(tmp_path, pa.table({"id": [each], "n": [1]}), mode="append")
    monkeypatch.setattr(module, "FILES_MAX", 1)
    with rows_of(tmp_path, "ID") as rows:
        rows.view("v", None)
        assert rows.connection.execute("SELECT table_type FROM information_schema.tables").fetchall() == [("BASE TABLE",)]
        assert rows.connection.execute("FROM v ORDER BY 1").fetchall() == [("a",), ("b",)], "only the columns that are read"
        config = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "ID"}}
        with closing(gx.Runner("t", rows.database)) as runner:
            (found,) = runner.run([config], "v", {}, form=gx.SUMMARY, index=("ID",), samples=1)
        assert found["success"]


def test_rows_are_counted_in_a_file_without_statistics(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": ["a", "b"]}))
    (commit,) = (tmp_path / "_delta_log").glob("*.json")
    lines = [line for line in commit.read_text().splitlines() if '"add"' not in line]
    (name,) = (path.name for path in tmp_path.glob("*.parquet"))
    add = f'{{"add":{{"path":"{name}","partitionValues":{{}},"size":1,"modificationTime":0,"dataChange":true}}}}'
    commit.write_text("\n".join([*lines, add, ""]))
    with rows_of(tmp_path) as found:
        assert found.most((Slice(1, 2, 3),)) == 2


def test_a_check_leaves_no_database_in_memory(tmp_path: Path) -> None:
    """During a run that never ends, each check would leave one."""
    write_deltalake(tmp_path, pa.table({"id": ["a", "b"]}))
    with rows_of(tmp_path, "id") as rows:
        rows.view("v", None)
        name = f":memory:{rows.database}"
        config = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}
        with closing(gx.Runner("t", rows.database)) as runner:
            (found,) = runner.run([config], "v", {}, form=gx.SUMMARY, index=("id",), samples=1)
        assert found["success"]
        assert count_views(name) == 1
    assert count_views(name) == 0


def count_views(name: str) -> int:
    with closing(duckdb.connect(name)) as connection:
        return len(connection.execute("SELECT 1 FROM duckdb_views() WHERE NOT internal").fetchall())


ZONES = """
import sys
from tests.unit.quality.test_duckdb_rows import read
from pathlib import Path
print([(str(row["at"]), str(row["st.at"])) for row in read(Path(sys.argv[1]), "id", "at", "st.at")])
"""


def test_times_are_those_of_the_machines_zone_also_from_int96(tmp_path: Path) -> None:
    """As PySpark gives them, and as GX's now() is. Spark writes INT96, which has no zone, the direct writer microseconds in UTC."""
    at = pa.array([NOON], pa.timestamp("us", "UTC"))
    for name in ("a", "b"):
        write_deltalake(
            tmp_path, pa.table({"id": [name], "at": at, "st": pa.array([{"at": NOON}], pa.struct([("at", at.type)]))}), mode="append"
        )
    file = min(tmp_path.glob("*.parquet"))
    table = pq.read_table(file)
    size = file.stat().st_size
    pq.write_table(table, tmp_path / "int96", use_deprecated_int96_timestamps=True)
    shutil.move(tmp_path / "int96", file)
    assert file.stat().st_size != size
    for zone, hour in (("UTC", 12), ("Asia/Tokyo", 21)):
        environment = {**os.environ, "TZ": zone}
        ended = subprocess.run(
            [sys.executable, "-c", ZONES, str(tmp_path)], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
        )
        moment = f"2024-02-29 {hour}:00:00.123456"
        assert ended.stdout.strip() == str([(moment, moment)] * 2), zone
