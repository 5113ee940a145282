"""Two tables are compared row by row, whatever their types, files and order: small tables that deltalake writes here."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.command import exit_code

pytestmark = pytest.mark.unit

Compare = Callable[..., tuple[int, Any]]
WHEN = datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
ROW = {
    "id": 1,
    "text": "ä",
    "amount": Decimal("1.50"),
    "float": 0.5,
    "day": date(2025, 1, 2),
    "at": WHEN,
    "yes": True,
    "bytes": b"\0",
    "list": [1, None],
    "struct": {"a": "x", "b": [{"c": 1}]},
    "map": [("k", 1), ("l", 2)],
    "_batch": 1,
}
SCHEMA = pa.schema(
    {
        **{"id": pa.int64(), "text": pa.string(), "amount": pa.decimal128(18, 2), "float": pa.float64(), "day": pa.date32()},
        **{"at": pa.timestamp("us", "UTC"), "yes": pa.bool_(), "bytes": pa.binary(), "list": pa.list_(pa.int64())},
        **{"struct": pa.struct({"a": pa.string(), "b": pa.list_(pa.struct({"c": pa.int64()}))}), "map": pa.map_(pa.string(), pa.int64())},
        "_batch": pa.int64(),
    }
)
# Another value for each column, and NULL.
OTHER: dict[str, Any] = {
    **{"text": "a", "amount": Decimal("1.51"), "float": float("nan"), "day": date(2025, 1, 3), "at": WHEN.replace(microsecond=7)},
    **{"yes": False, "bytes": b"", "list": [None, 1], "struct": {"a": "x", "b": [{"c": None}]}, "map": [("k", 1), ("l", 3)]},
}


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., str]:
    """`table(name, rows)` writes a table and returns its path; each further call with a name appends."""

    def write(name: str, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA, **more: Any) -> str:
        write_deltalake(str(tmp_path / name), pa.Table.from_pylist(rows, schema), **{"mode": "append", **more})
        return str(tmp_path / name)

    return write


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compare:
    """Runs `ingest compare`. Returns the exit code, and the table's JSON row if --json is among the words."""

    def run(*words: str) -> tuple[int, Any]:
        monkeypatch.chdir(tmp_path)
        code = exit_code("compare", *words)
        out = capsys.readouterr()
        if "--json" not in words:
            return code, out.out + out.err
        document = json.loads(out.out)
        return code, document["error"] or document["tables"][0]

    return run


def rows(*numbers: int, **changed: Any) -> list[dict[str, Any]]:
    return [{**ROW, "id": number, **changed} for number in numbers]


def test_the_same_rows_in_other_files_and_another_order_are_the_same(table: Callable[..., str], compare: Compare) -> None:
    one = table("one", rows(*range(100)))
    table("two", [{**row, "map": row["map"][::-1]} for row in rows(*range(99, 49, -1))])
    other = table("two", rows(*range(50), _batch=2), partition_by=None)
    assert compare(one, other)[0] == 0 and compare(one, other, "--key", "id")[0] == 0
    text = compare(one, other, "--key", "id")[1]
    assert text.startswith("THE SAME") and "ignored       _batch" in text
    assert compare(one, other, "--key", "id", "--columns", "_batch")[0] == 1, "a column that is chosen is compared"


def test_rows_only_here_only_there_and_differing_are_counted_and_named(table: Callable[..., str], compare: Compare) -> None:
    one = table("one", rows(1, 2, 3, 4))
    other = table("two", [*rows(3, 4, 5), *rows(2, text="b", float=2.0)])
    code, found = compare(one, other, "--key", "id", "--json")
    assert (code, found["rows"], found["only"], found["differing"]) == (1, [4, 4], [1, 1], 1)
    assert found["examples"]["only_here"] == [{"rows": 1, "key": {"id": 1}}]
    assert found["examples"]["only_there"] == [{"rows": 1, "key": {"id": 5}}]
    values = {"text": {"here": "ä", "there": "b"}, "float": {"here": 0.5, "there": 2.0}}
    assert found["examples"]["differing"] == [{"key": {"id": 2}, "values": values}]
    assert found["differs"] == {"text": 1, "float": 1}
    assert "! differing: id=2: text ä → b, float 0.5 → 2.0" in compare(one, other, "--key", "id")[1]
    assert compare(one, other, "--key", "id", "--ignore", "text,float", "--json")[1]["differing"] == 0
    whole = compare(one, other, "--json")[1]
    assert (whole["only"], whole["differing"]) == ([2, 2], 0), "without a key, a changed row is another row"


@pytest.mark.parametrize("column", OTHER)
def test_a_difference_in_any_type_is_found_null_included(table: Callable[..., str], compare: Compare, column: str) -> None:
    values = [ROW[column], OTHER[column], None]
    one = table("one", [{**ROW, "id": number, column: value} for number, value in enumerate(values)])
    assert compare(one, table("two", [{**ROW, "id": number, column: value} for number, value in enumerate(values)]), "--key", "id")[0] == 0
    moved = table("three", [{**ROW, "id": number, column: value} for number, value in enumerate([*values[1:], values[0]])])
    found = compare(one, moved, "--key", "id", "--json")[1]
    assert (found["differing"], found["differs"]) == (3, {column: 3})


def test_keys_of_several_rows_are_counted_and_compared_as_a_set(table: Callable[..., str], compare: Compare) -> None:
    one = table("one", [*rows(1, 2, 2), *rows(3, text="x"), *rows(3)])
    other = table("two", [*rows(3), *rows(1, 1, 2, 2), *rows(3, text="x")])
    found = compare(one, other, "--key", "id", "--json")[1]
    assert (found["repeated"], found["differing"]) == ([2, 3], 1)
    assert sorted(each["key"]["id"] for each in found["examples"]["repeated_there"]) == [1, 2, 3]
    found = compare(one, other, "--json")[1]
    assert (found["only"], found["examples"]["only_there"][0]["rows"]) == ([0, 1], 2)


def test_a_key_may_be_null_and_have_several_columns(table: Callable[..., str], compare: Compare) -> None:
    one, other = table("one", rows(1, text=None)), table("two", rows(1, text=""))
    assert compare(one, other, "--key", "id,text", "--json")[1]["only"] == [1, 1]
    assert compare(one, one, "--key", "id,text")[0] == 0


def test_other_columns_and_types_are_differences_and_wider_numbers_are_none(table: Callable[..., str], compare: Compare) -> None:
    narrow = pa.schema({"id": pa.int32(), "amount": pa.decimal128(10, 1), "float": pa.float32(), "text": pa.string(), "here": pa.string()})
    wide = pa.schema({"id": pa.int64(), "amount": pa.decimal128(38, 10), "float": pa.float64(), "text": pa.int64(), "there": pa.string()})
    values = {"id": 1, "amount": Decimal("1.5"), "float": 0.5}
    one = table("one", [{**values, "text": "1", "here": "x"}], narrow)
    other = table("two", [{**values, "text": 1, "there": "x"}], wide)
    code, found = compare(one, other, "--key", "id", "--json")
    assert (code, found["differing"], found["columns"]["only"]) == (1, 0, [["here"], ["there"]])
    assert found["columns"]["unlike"] == {"text": ["STRING", "BIGINT"]}
    assert compare(one, other, "--key", "id", "--ignore", "text,here,there")[0] == 0


def test_a_table_is_compared_with_its_past(table: Callable[..., str], compare: Compare) -> None:
    one = table("one", rows(1))
    table("one", rows(2))
    code, text = compare(f"{one}@0", one, "--key", "id")
    assert code == 1 and "only in B                1" in text, text
    assert compare(f"{one}@1", one)[0] == 0


def test_partition_columns_and_empty_tables_are_compared(table: Callable[..., str], compare: Compare) -> None:
    one = table("one", rows(1, 2), partition_by=["text", "day"])
    other = table("two", rows(1, 2))
    assert compare(one, other, "--key", "id")[0] == 0
    assert compare(table("three", []), other, "--key", "id", "--json")[1]["only"] == [0, 2]
    assert compare(table("three", []), table("four", []))[0] == 0


def test_tables_of_a_project_are_named_and_their_key_is_the_event_id(table: Callable[..., str], compare: Compare, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    contract = "pipeline: shop\ntable: orders\nsource: {topic: orders, format: json}\nevent_id: [id]\n"
    contract += "columns:\n  - {name: id, type: BIGINT, nullable: false}\n"
    (tmp_path / "tables" / "orders.yml").write_text(contract)
    table("lake/shop/orders/target", rows(1, 2))
    shadow = table("lake/shop/orders/shadow", rows(1, 3))
    for name in ("orders", "shop.orders", "lake/shop/orders/target"):
        found = compare(name, shadow, "--json")[1]
        assert (found["columns"]["key"], found["only"], found["differing"]) == (["id"], [1, 1], 0), found
    assert compare("order", shadow, "--json")[1]["code"] == "SQL_TABLE_UNKNOWN"


def test_a_column_that_no_table_has_and_a_missing_table_are_refused(table: Callable[..., str], compare: Compare) -> None:
    one = table("one", rows(1))
    for option in ("--key", "--columns", "--ignore"):
        assert compare(one, one, option, "txt", "--json")[1]["code"] == "COMPARE_COLUMN"
    assert compare(one, "nothing", "--json")[1]["code"] == "TABLE_MISSING"
