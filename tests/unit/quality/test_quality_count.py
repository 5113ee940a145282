"""The expected row count: the rows that batches inserted and that must still be there, as `ingest verify` counts them (I4)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta.batch_commit import BatchId
from ingest.delta.delta_log import DeltaLog
from ingest.quality.validation import ledger_rows
from ingest.runtime.files import LocalFiles
from tests.unit.verify.proof_lake import Lake

pytestmark = pytest.mark.unit


def expected(lake: Lake, version: int | None = None) -> int:
    return ledger_rows(None, lake.places, lake.target.version() if version is None else version)


def test_batches_up_to_a_version_count_even_if_the_ledger_lacks_them(lake: Lake) -> None:
    for number in range(3):
        lake.batch(number * 10, number * 10 + 10, range(number * 10, number * 10 + 10))
    lake.keep()
    newest = lake.target.version()
    for kept in (2, 0):
        lake.ledger.delete(f"batch >= {kept}")
        assert [expected(lake, newest - back) for back in (2, 1, 0)] == [10, 20, 30]


def test_missing_rows_are_expected_and_surplus_rows_are_not(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    lake.take(3, 4)
    assert expected(lake) == 10
    lake.rows([3, 4, 5])
    lake.rows([99], of=BatchId(7, 2))
    assert expected(lake) == 10


def test_deleted_rows_are_no_longer_expected_at_the_deletes_version(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    lake.target.delete("_offset < 3")
    version = lake.target.version()
    assert (expected(lake), expected(lake, version - 1)) == (7, 10)
    lake.target.restore(version - 1)
    assert (expected(lake), expected(lake, version)) == (10, 7)


def test_rows_that_were_lost_and_re_read_are_expected_once(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    lake.take(3)
    lake.seek(0)
    lake.batch(0, 10, (3,))
    assert expected(lake) == 10


def test_the_number_of_deleted_rows_is_read_from_the_delete_commit(tmp_path: Path) -> None:
    """Delta and delta-rs name this metric differently."""
    write_deltalake(str(tmp_path), pa.table({"a": [1, 2, 3]}))
    DeltaTable(str(tmp_path)).delete("a > 1")
    assert DeltaLog(LocalFiles(), str(tmp_path)).commit(1).deleted_rows == 2
