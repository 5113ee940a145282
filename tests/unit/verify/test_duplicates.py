"""Duplicate event ids and positions are found by hash and reported by value (I3)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.decode import row_hash
from ingest.delta.delta_sql import At, DataFusion
from ingest.verify import duplicates
from ingest.verify.count import SHOWN_MAX

MOMENT = datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
IDS: list[tuple[pa.DataType, Sequence[Any]]] = [
    (pa.string(), ["", "a", "b", "ab", "exactly8", "exactly8 and more", "0" * 200, "0" * 201, "ä" * 9, "\0"]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"\xff" * 16, b"\xff" * 15]),
    (pa.int8(), [-1, 0, 1]),
    (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    (pa.decimal128(20, 2), [Decimal("-1.00"), Decimal("0.01"), Decimal("0.10")]),
    (pa.date32(), [date(1969, 12, 31), date(2025, 1, 1)]),
    (pa.timestamp("us", "UTC"), [MOMENT, MOMENT.replace(microsecond=7)]),
]


def repeated(folder: Path, columns: dict[str, pa.Array]) -> list[list[Any]]:
    """The values of k0 that occur more than once, each as often as it occurs."""
    table = pa.table(columns)
    write_deltalake(str(folder), table, mode="overwrite", schema_mode="overwrite")
    keys = [name for name in columns if name.startswith("k")]
    sql = f"SELECT {', '.join(columns)} FROM {{rows}}"
    return [[row["k0"] for row in same] for same in duplicates.repeated(DataFusion(), sql, len(keys), table.num_rows, rows=At(str(folder)))]


@pytest.mark.parametrize(("kind", "values"), IDS, ids=[str(kind) for kind, _ in IDS])
def test_duplicate_values_of_every_event_id_type_are_found_and_distinct_ones_are_not(
    tmp_path: Path, kind: pa.DataType, values: Sequence[Any]
) -> None:
    assert repeated(tmp_path, {"k0": pa.array(values, kind)}) == []
    for value in values:
        assert repeated(tmp_path, {"k0": pa.array([*values, value], kind)}) == [[value, value]]


def test_null_is_compared_like_any_other_value(tmp_path: Path) -> None:
    assert repeated(tmp_path, {"k0": pa.array([None, 0, 1], pa.int64())}) == []
    assert repeated(tmp_path, {"k0": pa.array([None, "", None], pa.string())}) == [[None, None]]


def test_several_columns_form_one_event_id(tmp_path: Path) -> None:
    assert repeated(tmp_path, {"k0": pa.array(["a", "a", "ab"]), "k1": pa.array(["bc", "b", "c"])}) == []
    assert repeated(tmp_path, {"k0": pa.array(["a", "a"]), "k1": pa.array([1, 1])}) == [["a", "a"]]


def test_ids_with_the_same_hash_are_distinguished_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_hash, "_mixed", lambda hashes, _: hashes)
    assert repeated(tmp_path, {"k0": pa.array(["a", "b", "c"])}) == []
    assert repeated(tmp_path, {"k0": pa.array(["a", "b", "a"])}) == [["a", "a"]]


def test_a_table_too_large_for_one_pass_is_read_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "AT_ONCE", 7)
    ids = [f"id {number}" for number in range(100)]
    assert repeated(tmp_path, {"k0": pa.array(ids)}) == []
    assert repeated(tmp_path, {"k0": pa.array([*ids, *ids[3:5]])}) == [["id 3"] * 2, ["id 4"] * 2]


def test_only_the_first_few_duplicates_are_reported(tmp_path: Path) -> None:
    ids = [*range(1000)] * 2
    assert len(repeated(tmp_path, {"k0": pa.array(ids)})) == SHOWN_MAX
