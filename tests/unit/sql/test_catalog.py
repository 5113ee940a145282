"""Table names in `ingest sql`, and `--at`: the table versions that it means, found from the logs alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ingest.contract.definition import Contract
from ingest.delta.batch_commit import Snapshot
from ingest.delta.delta_log import DeltaLog
from ingest.quality import audited_version
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from ingest.sql.catalog import AUDITED_NOW, NOT_AUDITED, Catalog, Kind, LakeTable, at_time, at_version, catalog, parse_at

pytestmark = pytest.mark.unit

FILES = LocalFiles()
BEGAN = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)


def contract(table: str) -> Contract:
    columns = [{"name": "id", "type": "STRING", "nullable": False}]
    source = {"topic": table, "format": "json"}
    return Contract.model_validate({"pipeline": "p", "table": table, "source": source, "columns": columns, "event_id": ["id"]})


def log(lake: Path, table: str, *minutes: int, kind: str = "target", first: int = 0) -> None:
    """Commits at these minutes after BEGAN, from version `first` on."""
    folder = lake / "p" / table / kind / "_delta_log"
    folder.mkdir(parents=True)
    for version, minute in enumerate(minutes, first):
        stamp = int((BEGAN + timedelta(minutes=minute)).timestamp() * 1000)
        (folder / f"{version:020}.json").write_text(json.dumps({"commitInfo": {"timestamp": stamp, "operation": "MERGE"}}))


@pytest.fixture
def known(tmp_path: Path) -> Catalog:
    """Orders: minutes 0, 10, 20 and a ledger at minute 1. Payments: the log starts with version 7 at minute 15."""
    log(tmp_path, "orders", 0, 10, 20)
    log(tmp_path, "orders", 1, kind="ledger")
    log(tmp_path, "payments", 15, 25, first=7)
    return catalog([contract("orders"), contract("payments")], str(tmp_path), FILES)


def versions(found: Catalog) -> dict[str, int | None]:
    return {each.short: each.version for each in found.tables}


@pytest.mark.parametrize(
    ("minute", "found"),
    [
        (0.0, {"orders": 0}),
        (9.99, {"orders": 0, "orders__ledger": 0}),
        (10.0, {"orders": 1, "orders__ledger": 0}),
        (19.99, {"orders": 1, "orders__ledger": 0, "payments": 7}),
        (20.0, {"orders": 2, "orders__ledger": 0, "payments": 7}),
        (9999.0, {"orders": 2, "orders__ledger": 0, "payments": 8}),
    ],
)
def test_a_time_means_each_tables_last_commit_at_or_before_it(known: Catalog, minute: float, found: dict[str, int]) -> None:
    assert versions(at_time(known, BEGAN + timedelta(minutes=minute), FILES)) == found


def test_a_table_that_did_not_exist_at_the_time_is_absent_with_its_reason(known: Catalog) -> None:
    then = at_time(known, BEGAN, FILES)
    reasons = dict(then.absent)
    assert reasons["p.orders__ledger"] == "it was created at 2025-01-02T03:05:05Z"
    assert reasons["p.payments"] == "its log reaches back to 2025-01-02T03:19:05Z only"
    assert "it was created at" in then.unknown("orders__ledger").found
    assert at_time(known, BEGAN - timedelta(milliseconds=1), FILES).tables == ()


def test_the_audited_version_of_a_table_is_a_table_of_its_own(tmp_path: Path, known: Catalog) -> None:
    assert dict(known.absent)["p.orders__audited"] == NOT_AUDITED
    places = Places(str(tmp_path), "", "p", "orders")
    audited_version.passed(FILES, places, Snapshot("", 1, DeltaLog(FILES, places.target).stamp(1)), "run")
    now = catalog([contract("orders")], str(tmp_path), FILES)
    assert versions(now) == {"orders": None, "orders__ledger": None, "orders__audited": 1}
    assert now.names["orders__audited"].path == now.names["orders"].path
    assert dict(at_time(now, BEGAN + timedelta(days=1), FILES).absent)["p.orders__audited"] == AUDITED_NOW
    (Path(places.target) / f"_delta_log/{1:020}.json").unlink()
    assert "the log no longer has its version 1" in dict(catalog([contract("orders")], str(tmp_path), FILES).absent)["p.orders__audited"]


def test_a_version_applies_to_the_named_table_only_and_must_exist(known: Catalog) -> None:
    assert versions(at_version(known, "p.orders", 1, FILES)) == {"orders": 1, "orders__ledger": None, "payments": None}
    with pytest.raises(InvalidInput, match="SQL_AT_UNKNOWN") as caught:
        at_version(known, "orders", 3, FILES)
    assert caught.value.expected == "0 to 2."
    with pytest.raises(InvalidInput, match="SQL_TABLE_UNKNOWN"):
        at_version(known, "orders__quality", 0, FILES)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("7", 7),
        ("0", 0),
        ("2025-01-02", datetime(2025, 1, 2, tzinfo=UTC)),
        ("2025-01-02T03:04", datetime(2025, 1, 2, 3, 4, tzinfo=UTC)),
        ("2025-01-02 03:04:05.5Z", datetime(2025, 1, 2, 3, 4, 5, 500000, tzinfo=UTC)),
        ("2025-01-02T03:04:05+02:00", datetime(2025, 1, 2, 1, 4, 5, tzinfo=UTC)),
    ],
)
def test_at_is_a_version_or_a_time(text: str, expected: object) -> None:
    assert parse_at(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "²", "yesterday", "1.5", "2025-13-01", "0001-01-01T00:00:00+05:00"])
def test_at_refuses_text_that_is_neither_a_version_nor_a_time(text: str) -> None:
    with pytest.raises(InvalidInput, match="SQL_AT_INVALID"):
        parse_at(text)


def tables(*given: tuple[str, str, Kind]) -> Catalog:
    return Catalog(tuple(LakeTable(pipeline, table, kind, f"/{pipeline}/{table}/{kind}") for pipeline, table, kind in given))


def test_a_name_means_exactly_one_table_or_none() -> None:
    known = tables(("a", "x", "target"), ("b", "x", "target"), ("a", "x", "ledger"), ("a", "x__ledger", "target"), ("a", "y", "quality"))
    assert {name: each.path for name, each in known.names.items()} == {
        "a.x": "/a/x/target",
        "b.x": "/b/x/target",
        "a.x__ledger": "/a/x__ledger/target",
        "x__ledger": "/a/x__ledger/target",
        "a.y__quality": "/a/y/quality",
        "y__quality": "/a/y/quality",
    }
    assert list(known.listed) == ["a.x", "b.x", "x__ledger", "y__quality"]
    assert "did you mean y__quality?" in known.unknown("y_quality").expected
