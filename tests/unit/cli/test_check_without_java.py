"""`ingest check` as a user types it, on a machine without Java: DuckDB checks, and says when Spark would have to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.contract.definition import load_contracts
from ingest.delta.direct_writer import DirectWriter
from ingest.runtime.places import Places
from tests.unit.quality.suite_scene import contract_of

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]
UNIQUE = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}
NAMES = {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "home.city", "regex": r"^\w+$"}}
RISING = {"type": "expect_column_values_to_be_increasing", "kwargs": {"column": "_offset"}}


def project_of(folder: Path, expectations: Sequence[Any]) -> list[str]:
    """A project with a table of three rows, two of them with the same id; returns the options of a command."""
    (folder / "tables").mkdir(exist_ok=True)
    (folder / "tables" / "people.yml").write_text(contract_of().to_json())
    (folder / "s.json").write_text(json.dumps({"name": "t", "expectations": expectations}))
    (contract,) = load_contracts(folder, [])
    places = Places(str(folder / "lake"), str(folder / "checkpoints"), contract.pipeline, contract.table)
    DirectWriter().create_tables(contract, places)
    if DeltaTable(places.target).version() == 0:
        now = pa.array([1_700_000_000_000_000] * 3, pa.timestamp("us", "UTC"))
        numbers = {"_source": pa.int16(), "_partition": pa.int32(), "_epoch": pa.int32(), "_batch": pa.int64()}
        rows: dict[str, Any] = {
            "id": ["a", "b", "b"],
            "name": ["x"] * 3,
            "home": [{"city": each} for each in ("Ulm", "Bad Urach", None)],
            "_offset": [0, 1, 2],
        }
        rows |= {name: pa.array([2] * 3, kind) for name, kind in numbers.items()} | {"_kafka_timestamp": now, "_ingested_at": now}
        write_deltalake(places.target, pa.table(rows), mode="append")
    return ["--project", str(folder), "--lake", places.lake]


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": "/nowhere"}
    command = [sys.executable, "-m", "ingest", "check", *words]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def test_a_check_needs_no_java_and_stores_its_results(tmp_path: Path) -> None:
    where = project_of(tmp_path, [UNIQUE, NAMES])
    ended = typed(*where)
    assert ended.returncode == 1, ended.stderr
    assert "t.people: FAILED (0 of 2 expectations; all rows at version 1 (the first validation run); duckdb, " in ended.stdout
    assert "! critical: expect_column_values_to_be_unique (id): 2 of 3 rows, such as b, b" in ended.stdout
    assert "! critical: expect_column_values_to_match_regex (home.city): 1 of 3 rows, such as b" in ended.stdout
    (table,) = json.loads(typed(*where, "--json").stdout)["tables"]
    assert (table["engine"], table["scope"]["run"], len(table["expectations"])) == ("duckdb", "new", 1), "nothing new: unique ids only"
    stored = DeltaTable(tmp_path / "lake/t/people/quality").to_pyarrow_table().sort_by("number").to_pylist()
    assert [(row["engine"], row["success"], row["samples"]) for row in stored[:2]] == [("duckdb", False, '[{"id": "b"}, {"id": "b"}]')] * 2
    assert Path(stored[0]["page"]).is_file()


def test_a_suite_that_needs_spark_says_which_expectation_asks_for_it(tmp_path: Path) -> None:
    ended = typed(*project_of(tmp_path, [UNIQUE, RISING]))
    assert ended.returncode == 4, "there is no Java"
    reason = "expectations[1] of s.json, expect_column_values_to_be_increasing, is not among the types that are equal in DuckDB"
    assert f"note: t.people is checked by Spark: {reason}" in ended.stderr
    ended = typed(*project_of(tmp_path, [UNIQUE]), "--spark")
    assert ended.returncode == 4 and "is checked by Spark" not in ended.stderr, "as asked"
