"""Partitions: values of every type come back from our files, and those that cannot are known before anything is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.decode.partition_value import folder_name, text_of, unwritable, value_of
from ingest.delta.batch_commit import BatchCommit, Upkeep
from ingest.delta.creation import create_operation, creation
from ingest.delta.data_file import sync, write_file
from ingest.delta.delta_sql import At, DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.partition import read, write_files
from ingest.delta.put import Operation, put
from ingest.delta.table_definitions import TableDefinition
from ingest.delta.table_rows import rewritten
from ingest.runtime.errors import Bug
from ingest.runtime.files import LocalFiles

pytestmark = pytest.mark.unit
ABOUT = BatchCommit(Upkeep(), "shop", "orders")

APPEND = Operation("WRITE", {"mode": "Append"}, {})
ODD = "a b/=%:\"#+?&ü\\{}[]^~!*|<>'\n\x7f😀%41."
# Column, type, and values that come back.
VALUES: dict[str, tuple[T.DataType, Sequence[Any]]] = {
    "s": (T.StringType(), [ODD, " ", None, "null", "true", "."]),
    "bo": (T.BooleanType(), [True, False, None]),
    "ti": (T.ByteType(), [-128, 127, None]),
    "sm": (T.ShortType(), [-1, 0, None]),
    "n": (T.IntegerType(), [-(2**31), 2**31 - 1, None]),
    "bi": (T.LongType(), [-(2**63), 2**63 - 1, None]),
    "de": (T.DecimalType(20, 3), [Decimal("-1.500"), Decimal("0.000"), Decimal("12345678901234567.891"), None]),
    "da": (T.DateType(), [date(1, 1, 1), date(1500, 3, 1), date(9999, 12, 31), None]),
    "ts": (
        T.TimestampType(),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None],
    ),
    "nt": (T.TimestampNTZType(), [datetime(1, 1, 1), datetime(2026, 1, 2, 3, 4, 5, 600000), datetime(9999, 12, 31, 23, 59, 59), None]),
    "f": (T.FloatType(), [0.5, -1e30, float("inf"), None]),
    "d": (T.DoubleType(), [0.1, 1e300, float("-inf"), None]),
    "by": (T.BinaryType(), [b"a\x01\xc3\xbc", None]),
}


def table_of(folder: Path, columns: dict[str, T.DataType], partition_by: Sequence[str]) -> LiveTable:
    """A new table of a column `id` and these."""
    fields = [T.StructField("id", T.LongType(), False), *(T.StructField(name, kind) for name, kind in columns.items())]
    definition = TableDefinition(str(folder / "t"), tuple(fields), partition_by=tuple(partition_by))
    table = LiveTable(LocalFiles(), definition.path)
    put(LocalFiles(), table, ABOUT, create_operation(definition), creation(definition))
    table.load()
    return table


def append(table: LiveTable, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Add rows in one commit; returns them as Arrow."""
    assert table.state is not None
    schema = to_arrow_schema(T.StructType.fromJson(json.loads(table.state.schema)), timezone="UTC")
    arrow = pa.Table.from_pylist(list(rows), schema)
    staged = write_files(table.path, arrow, ("id",), table.state.partition_by)
    sync(table.path, [each.path for each in staged])
    put(LocalFiles(), table, ABOUT, APPEND, [each.addition() for each in staged])
    return arrow


@pytest.fixture(params=VALUES)
def one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[LiveTable, pa.Table, str]]:
    """A table that is partitioned by a column of one type, with a row for each value."""
    kind, values = VALUES[request.param]
    table = table_of(tmp_path, {request.param: kind}, [request.param])
    yield table, append(table, [{"id": n, request.param: value} for n, value in enumerate(values)]), request.param


def test_values_of_every_type_come_back_from_our_files(one: tuple[LiveTable, pa.Table, str]) -> None:
    table, rows, name = one
    again = LiveTable(LocalFiles(), table.path)
    again.load()
    for found in (table, again):  # from the commit, and through deltalake
        assert len(found.live) == rows.num_rows, "a file for each value"
        back = pa.concat_tables([read(table.path, file, rows.schema) for file in found.live.values()]).sort_by("id")
        assert back.to_pylist() == rows.to_pylist()
    assert table.live == again.live or name == "f"  # the loaded text of a FLOAT has the digits of a DOUBLE


def test_deltalake_and_datafusion_read_the_same_values(one: tuple[LiveTable, pa.Table, str]) -> None:
    table, rows, name = one
    by_datafusion = DataFusion().ask("SELECT * FROM {t} ORDER BY id", t=At(table.path))
    assert by_datafusion == rows.to_pylist()
    if name not in ("by", "de"):  # deltalake's datasets have no BINARY partitions, and make `-1.-500` of a negative DECIMAL
        assert DeltaTable(table.path).to_pyarrow_table().sort_by("id").select(rows.column_names).to_pylist() == rows.to_pylist()


def test_partition_columns_are_not_in_the_files_and_names_are_escaped_as_spark_does(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"a b": T.StringType(), "n": T.IntegerType()}, ["a b", "n"])
    append(table, [{"id": 1, "a b": "x/y=ü 1", "n": None}])
    (path,) = table.live
    assert path.startswith("a b=x%2Fy%3Dü 1/n=__HIVE_DEFAULT_PARTITION__/part-") and (Path(table.path) / path).exists()
    (add,) = (json.loads(line)["add"] for line in Path(table.path_of(1)).read_text().splitlines() if '"add"' in line)
    assert add["path"].startswith("a%20b=x%252Fy%253D%C3%BC%201/n=__HIVE_DEFAULT_PARTITION__/part-")
    assert add["partitionValues"] == {"a b": "x/y=ü 1", "n": None}
    assert read(table.path, table.live[path], pa.schema([("n", pa.int32()), ("a b", pa.string())])).to_pylist() == [
        {"n": None, "a b": "x/y=ü 1"}
    ]


def test_rows_are_split_by_all_columns_and_keep_their_order(tmp_path: Path) -> None:
    rows = pa.table({"id": range(6), "a": ["x", "y", "x", None, "x", "y"], "b": [1, 1, 1, 1, 2, 1]})
    staged = write_files(str(tmp_path), rows, ("id", "a"), ("a", "b"))
    found = {tuple(each.partition_values.values()): read(str(tmp_path), each, rows.schema)["id"].to_pylist() for each in staged}
    assert found == {("x", "1"): [0, 2], ("y", "1"): [1, 5], (None, "1"): [3], ("x", "2"): [4]}
    assert all(json.loads(each.stats)["nullCount"] == {"id": 0} for each in staged), "no statistics of partition columns"


def test_values_that_cannot_be_written_are_known_before(tmp_path: Path) -> None:
    """The empty text would come back as NULL; a name of 300 bytes would stop the table for good."""
    texts = ["x", "", "x" * 300, "x" * 253, "x" * 254, "ü" * 127, "/" * 84, "/" * 85, "__HIVE_DEFAULT_PARTITION__", "a\0b", None]
    rows = pa.table({"id": range(len(texts)), "s": texts})
    mask, cause = unwritable(rows, ("s",))
    expected = [False, True, True, False, True, True, False, True, True, True, False]
    assert mask.tolist() == expected and cause.to_pylist() == ["s" if wrong else None for wrong in expected]
    written = write_files(str(tmp_path), rows.filter(pa.array(~mask)), (), ("s",))
    assert sum(each.rows for each in written) == expected.count(False)
    with pytest.raises(ValueError, match="partition column s"):
        write_files(str(tmp_path), pa.table({"id": [1], "s": [""]}), (), ("s",))


def test_the_folders_of_a_row_together_are_not_too_long_for_a_store() -> None:
    rows = pa.table({name: ["x" * 240, "x"] for name in "abcd"})
    mask, cause = unwritable(rows, ("a", "b", "c", "d"))
    assert mask.tolist() == [True, False] and cause.to_pylist() == ["c", None]


def test_times_and_bytes_without_a_text_are_unwritable() -> None:
    rows = pa.table(
        {
            "day": pa.array([-800_000, 3_000_000, 0], pa.int32()).cast(pa.date32()),
            "at": pa.array([-(2**60), 2**60, 0]).cast(pa.timestamp("us", "UTC")),
            "b": pa.array([b"\xff", b"", b"ok"]),
        }
    )
    for name in rows.column_names:
        assert unwritable(rows, (name,))[0].tolist() == [True, True, False]


def test_partition_values_of_a_text_of_another_engine() -> None:
    assert value_of("2026-01-02 03:04:05.5", pa.timestamp("us", "UTC")) == datetime(2026, 1, 2, 3, 4, 5, 500000, UTC)
    assert value_of("2026-01-02T03:04:05.000006Z", pa.timestamp("us", "UTC")) == datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    assert (value_of("1.5", pa.decimal128(9, 3)), value_of("1.0E300", pa.float64())) == (Decimal("1.5"), 1e300)
    assert value_of("", pa.string()) is None
    assert text_of(datetime(5, 1, 2, tzinfo=UTC)) == "0005-01-02T00:00:00.000000Z" and text_of(False) == "false"
    for text, kind in (("x", pa.int32()), ("x", pa.bool_()), ("x", pa.decimal128(3, 1)), ("10000-01-01", pa.date32())):
        with pytest.raises(ValueError):
            value_of(text, kind)
    assert folder_name("d", "2026-01-01") == "d=2026-01-01"


def test_a_delete_writes_the_rest_of_a_partition_into_the_partition(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"day": T.DateType()}, ["day"])
    days = (date(2026, 1, 1), date(2026, 1, 2), None)
    append(table, [{"id": n, "day": days[n % 3]} for n in range(9)])
    writer, gone = DirectWriter(), pa.table({"id": [4, 5]})

    def decide(found: LiveTable) -> Any:
        return Operation("DELETE", {}, {}), rewritten(found, gone, lambda rows, hit: rows.filter(pa.array(~hit)))

    writer.unfenced(table.path, ABOUT, decide)
    left = {row["id"]: row["day"] for row in DataFusion().ask("SELECT * FROM {t}", t=At(table.path))}
    assert left == {n: days[n % 3] for n in range(9) if n not in (4, 5)}


def test_bounds_of_a_partition_exclude_files_of_other_partitions(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"day": T.DateType()}, ["day"])
    append(table, [{"id": 1, "day": date(2026, 1, 1)}, {"id": 2, "day": None}])
    assert sorted(str(file.least.get("day")) for file in table.live.values()) == ["2026-01-01", "None"]
    assert all(file.least.get("day") == file.greatest.get("day") for file in table.live.values())


def test_a_file_without_the_tables_partition_values_is_never_committed(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"day": T.DateType()}, ["day"])
    file = write_file(table.path, pa.table({"id": [1]}), ())
    writer = DirectWriter()
    with pytest.raises(Bug, match="PARTITIONS_MISSING"):
        writer.unfenced(table.path, ABOUT, lambda _: (APPEND, [file.addition()]))
    assert DeltaTable(table.path).version() == 0
