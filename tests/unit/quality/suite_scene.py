"""The contract of a table of people, and the suite that it names, written and loaded as a run does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.definition import Contract
from ingest.quality.suite import Expected, Suite, load_suites
from ingest.runtime.errors import InvalidInput


def contract_of(**more: Any) -> Contract:
    columns = [
        {"name": "id", "type": "STRING", "nullable": False},
        {"name": "name", "type": "STRING", "sensitive": True},
        {"name": "home", "type": "STRUCT<city: STRING>"},
    ]
    source = {"topic": "people", "format": "json"}
    described = {"pipeline": "t", "table": "people", "source": source, "columns": columns, "event_id": ["id"], "suite": "s.json", **more}
    return Contract.model_validate(described)


EXISTS = {"type": "expect_column_to_exist", "kwargs": {"column": "id"}}


def write(tmp_path: Path, *expectations: Mapping[str, Any]) -> None:
    """The suite that the contract names."""
    (tmp_path / "s.json").write_text(json.dumps({"name": "t", "expectations": expectations}))


def problems(tmp_path: Path, *expectations: Mapping[str, Any]) -> str:
    write(tmp_path, *expectations)
    with pytest.raises(InvalidInput) as refused:
        load_suites(tmp_path, [contract_of()])
    assert refused.value.code == "SUITE_INVALID"
    assert refused.value.exit_code == 2
    return refused.value.found


def expected_of(tmp_path: Path, config: Mapping[str, Any], **contract: Any) -> tuple[Suite, Expected]:
    write(tmp_path, config)
    (suite,) = load_suites(tmp_path, [contract_of(**contract)])
    return suite, suite.expectations[0]
