"""The position columns of a table that others wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.delta.delta_sql import DataFusion
from ingest.runtime.errors import InvalidInput
from ingest.verify.audit.audited_table import AuditedTable, PositionColumns

pytestmark = pytest.mark.unit


def table(folder: Path, *sources: int) -> AuditedTable:
    rows = [{"_source": source, "_partition": 0, "_offset": at} for at, source in enumerate(sources)]
    write_deltalake(str(folder), pa.Table.from_pylist(rows))
    return AuditedTable.open(DataFusion(), str(folder))


def test_equal_positions_of_several_topics_are_not_mixed(tmp_path: Path) -> None:
    assert table(tmp_path / "one", 0, 0).usual_positions() == PositionColumns("_partition", "_offset")
    with pytest.raises(InvalidInput, match=r"AUDIT_COLUMN.*several topics.*verify --against-kafka"):
        table(tmp_path / "two", 0, 1).usual_positions()
