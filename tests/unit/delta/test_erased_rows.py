"""Statements of an erasure by the direct writer: exactly the positions go, their count stands in the commit, and no file keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta.delta_log import DeltaLog
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.stored_rows import TARGET
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import LocalFiles

pytestmark = pytest.mark.unit
ABOUT = json.dumps({"oncelake": 1, "kind": "maintain", "retired_at": "then"})


def rows(*offsets: int, batch: int = 2, mail: str = "ada") -> pa.Table:
    numbers = {"_epoch": pa.int32(), "_batch": pa.int64(), "_partition": pa.int32(), "_offset": pa.int64()}
    values = [[1] * len(offsets), [batch] * len(offsets), [0] * len(offsets), list(offsets)]
    columns = {name: pa.array(given, kind) for (name, kind), given in zip(numbers.items(), values, strict=True)}
    return pa.table({**columns, "mail": [mail] * len(offsets)})


def positions(*found: tuple[int, int, int, int]) -> pa.Table:
    return pa.table(dict(zip("ebpo", (list(each) for each in zip(*found, strict=True)), strict=True)))


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Two files: batch 2 with the offsets 0 to 2, batch 3 with 3 and 4."""
    path = str(tmp_path / "target")
    write_deltalake(path, rows(0, 1, 2), partition_by=["_partition"])
    write_deltalake(path, rows(3, 4, batch=3, mail="b"), mode="append")
    return path


def offsets(table: str) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["_offset"].to_pylist())


def data_files(table: str) -> list[str]:
    return sorted(path.name for path in Path(table).rglob("*.parquet") if "_delta_log" not in path.parts)


def test_exactly_the_positions_are_deleted_and_counted(table: str) -> None:
    before = {add["path"] for add in DeltaTable(table).get_add_actions().to_struct_array().to_pylist()}
    DirectWriter().delete_positions(positions((1, 2, 0, 1), (1, 2, 0, 9), (1, 3, 0, 0)), table, TARGET, ABOUT)
    assert offsets(table) == [0, 2, 3, 4], "batch 3 has no offset 0"
    commit = DeltaLog(LocalFiles(), table).commit(2)
    assert (commit.operation, commit.deleted_rows, commit.retired_at) == ("MERGE", 1, "then")
    assert "ada" not in json.dumps(commit.parameters)
    after = {add["path"] for add in DeltaTable(table).get_add_actions().to_struct_array().to_pylist()}
    assert len(before & after) == 1, "the other file stays"
    DirectWriter().delete_positions(positions((1, 2, 0, 1)), table, TARGET, ABOUT)
    assert DeltaLog(LocalFiles(), table).newest() == 2, "nothing is left to delete"


def test_a_file_that_loses_all_its_rows_has_no_successor(table: str) -> None:
    DirectWriter().delete_positions(positions(*((1, 2, 0, offset) for offset in range(3))), table, TARGET, ABOUT)
    assert offsets(table) == [3, 4] and len(data_files(table)) == 2


def test_vacuum_deletes_every_file_that_the_newest_version_does_not_need(table: str) -> None:
    """The file of a killed batch too: it may have the person's row. What engines keep beside the data stays."""
    DirectWriter().delete_positions(positions((1, 2, 0, 1)), table, TARGET, ABOUT)
    inside = Path(table) / "_partition=0"
    stray, checksum = inside / "part-killed.parquet", inside / ".part-killed.parquet.crc"
    kept = [Path(table) / "_temporary/other.parquet", Path(table) / ".hidden"]
    changes = Path(table) / "_change_data/cdc.parquet"
    for path in (stray, checksum, *kept, changes):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"ada")
    DirectWriter().vacuum(table, ABOUT)
    assert not any(path.exists() for path in (stray, checksum, changes)) and all(path.exists() for path in kept)
    live = DeltaTable(table).get_add_actions().num_rows
    assert len(data_files(table)) == live + 1 and offsets(table) == [0, 2, 3, 4]
    log = DeltaLog(LocalFiles(), table)
    assert [commit.operation for commit in log.since(2)] == ["VACUUM START", "VACUUM END"]
    assert log.commit(4).metrics["numDeletedFiles"] == "3"
    DirectWriter().vacuum(table, ABOUT)
    assert offsets(table) == [0, 2, 3, 4]


def test_a_table_with_a_change_data_feed_is_left_to_spark(table: str) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with pytest.raises(InvalidInput, match="DIRECT_UNFIT"):
        DirectWriter().delete_positions(positions((1, 2, 0, 1)), table, TARGET, ABOUT)
    assert offsets(table) == [0, 1, 2, 3, 4]
