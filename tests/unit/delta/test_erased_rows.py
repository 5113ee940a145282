"""Statements of an erasure by the direct writer: exactly the positions go, the same commit posts it, and no file keeps them (I4)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from ingest.delta.batch_commit import BatchCommit, Create, Upkeep
from ingest.delta.contract_change import EVENT_ID_PROPERTY
from ingest.delta.creation import create_operation, creation
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.posting import Key, Posting
from ingest.delta.put import put
from ingest.delta.stored_rows import TARGET, sums_at
from ingest.delta.table_definitions import TableDefinition
from ingest.repair.retention import POSITIONS
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import LocalFiles

pytestmark = pytest.mark.unit
ABOUT = BatchCommit(Upkeep("a test"), "shop", "orders", writer="one")


def rows(*offsets: int, batch: int = 2, mail: str = "ada") -> pa.Table:
    numbers = {"_epoch": pa.int32(), "_batch": pa.int64(), "_source": pa.int16(), "_partition": pa.int32(), "_offset": pa.int64()}
    values = [[1] * len(offsets), [batch] * len(offsets), [0] * len(offsets), [0] * len(offsets), list(offsets)]
    columns = {name: pa.array(given, kind) for (name, kind), given in zip(numbers.items(), values, strict=True)}
    return pa.table({**columns, "mail": pa.array([mail] * len(offsets), pa.string())})


def positions(*found: tuple[int, int, int]) -> pa.Table:
    """Rows of partition 0, by epoch, batch and offset."""
    return pa.Table.from_pylist([{"e": epoch, "b": batch, "s": 0, "p": 0, "o": offset} for epoch, batch, offset in found], POSITIONS)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Two files: batch 2 with the offsets 0 to 2, batch 3 with 3 and 4."""
    path = str(tmp_path / "target")
    (tmp_path / "target/_delta_log").mkdir(parents=True)
    fields = tuple(T.StructField(name, from_arrow_type(kind)) for name, kind in zip(rows().schema.names, rows().schema.types, strict=True))
    definition = TableDefinition(path, fields, {EVENT_ID_PROPERTY: '["mail"]'}, ("_partition",))
    put(LocalFiles(), LiveTable(LocalFiles(), path), BatchCommit(Create(), "", ""), create_operation(definition), creation(definition))
    write_deltalake(path, rows(0, 1, 2), mode="append")
    write_deltalake(path, rows(3, 4, batch=3, mail="b"), mode="append")
    return path


def offsets(table: str) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["_offset"].to_pylist())


def data_files(table: str) -> list[str]:
    return sorted(path.name for path in Path(table).rglob("*.parquet") if "_delta_log" not in path.parts)


def test_exactly_the_positions_are_deleted_and_counted(table: str) -> None:
    before = {add["path"] for add in DeltaTable(table).get_add_actions().to_struct_array().to_pylist()}
    held = sums_at(DataFusion(), At(table), TARGET, ("mail",))
    found = positions((1, 2, 1), (1, 2, 9), (1, 3, 0))
    assert DirectWriter().remove(found, table, TARGET, ABOUT, "erasure") == 1
    assert offsets(table) == [0, 2, 3, 4], "batch 3 has no offset 0"
    log = DeltaLog(LocalFiles(), table)
    commit = log.commit(log.newest())
    assert (commit.operation, commit.deleted_rows) == ("MERGE", 1)
    left = sums_at(DataFusion(), At(table), TARGET, ("mail",))
    key = Key(1, 2, 0, 0)
    posting = Posting(key, "erasure", target=left[key] - held[key])
    assert commit.batch_commit == replace(ABOUT, postings=(posting,)) and posting.inserted == -1, "one commit removes and posts"
    assert "ada" not in json.dumps(commit.parameters)
    after = {add["path"] for add in DeltaTable(table).get_add_actions().to_struct_array().to_pylist()}
    assert len(before & after) == 1, "the other file stays"
    assert DirectWriter().remove(found, table, TARGET, ABOUT, "erasure") == 0
    assert DeltaLog(LocalFiles(), table).newest() == commit.version, "nothing is left to delete"


def test_a_file_that_loses_all_its_rows_has_no_successor(table: str) -> None:
    DirectWriter().remove(positions(*((1, 2, offset) for offset in range(3))), table, TARGET, ABOUT, "erasure")
    assert offsets(table) == [3, 4] and len(data_files(table)) == 2


def test_vacuum_deletes_every_file_that_the_newest_version_does_not_need(table: str) -> None:
    """The file of a killed batch too: it may have the person's row. What engines keep beside the data stays."""
    DirectWriter().remove(positions((1, 2, 1)), table, TARGET, ABOUT, "erasure")
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
    assert [commit.operation for commit in log.since(3)] == ["VACUUM START", "VACUUM END"]
    assert log.commit(5).metrics["numDeletedFiles"] == "3"
    DirectWriter().vacuum(table, ABOUT)
    assert offsets(table) == [0, 2, 3, 4]


def test_a_table_with_a_change_data_feed_is_left_to_spark(table: str) -> None:
    DeltaTable(table).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with pytest.raises(InvalidInput, match="DIRECT_UNFIT"):
        DirectWriter().remove(positions((1, 2, 1)), table, TARGET, ABOUT, "erasure")
    assert offsets(table) == [0, 1, 2, 3, 4]
