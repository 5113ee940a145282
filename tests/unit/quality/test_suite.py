"""Suites are checked against GX and the contract before a run starts. GX itself would skip what it does not know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ingest.cli.check import check_all
from ingest.cli.run import _watch
from ingest.contract.definition import load_contracts
from ingest.quality import gx
from ingest.quality.suite import load_suites
from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places
from tests.unit.quality.suite_scene import EXISTS, contract_of, expected_of, problems, write

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize("table", ["orders", "payments"])
def test_the_projects_suites_are_formatted_as_gx_writes_them(table: str) -> None:
    text = (PROJECT / "expectations" / f"{table}.json").read_text(encoding="utf-8")
    assert json.dumps(gx.saved(json.loads(text)), indent=2) + "\n" == text


def test_a_suite_that_was_edited_with_gx_is_accepted_with_the_ids_that_gx_adds(tmp_path: Path) -> None:
    import great_expectations
    from great_expectations.core.expectation_suite import expectationSuiteSchema
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    (contract,) = load_contracts(PROJECT, ["orders"])
    (before,) = load_suites(PROJECT, [contract])
    file = Path(str(contract.suite))
    document = json.loads((PROJECT / file).read_text(encoding="utf-8"))
    kept = gx.context().suites.add(great_expectations.ExpectationSuite(**document))
    more: dict[str, Any] = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "currency"}, "severity": "warning"}
    kept.add_expectation(ExpectationConfiguration(**more).to_domain_obj())
    saved = expectationSuiteSchema.dump(kept)
    assert all(each["id"] for each in saved["expectations"])
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(json.dumps(saved, indent=2), encoding="utf-8")
    (after,) = load_suites(tmp_path, [contract])
    assert [(each.type, each.kwargs, each.severity) for each in after.expectations] == [
        *((each.type, each.kwargs, each.severity) for each in before.expectations),
        ("expect_column_values_to_not_be_null", {"column": "currency"}, "warning"),
    ]
    assert after.hash != before.hash


def test_the_projects_suites_match_their_contracts_and_use_every_kind_of_expectation() -> None:
    for suite in load_suites(PROJECT, load_contracts(PROJECT)):
        kinds = {each.type for each in suite.expectations}
        assert {"expect_column_values_to_be_unique", "expect_table_row_count_to_equal", "expect_column_max_to_be_between"} <= kinds
        assert {"expect_column_values_to_be_in_set", "expect_column_values_to_match_regex"} <= kinds
        assert {"expect_column_values_to_not_be_null", "expect_column_values_to_be_between"} <= kinds
        spread = {"expect_column_kl_divergence_to_be_less_than", "expect_column_mean_to_be_between"}
        assert {each.severity for each in suite.expectations if each.type in spread} == {"info"}, "on a few new rows the result is chance"
        assert "expect_column_pair_values_a_to_be_greater_than_b" in kinds
        assert {each.severity for each in suite.expectations} == {"critical", "warning", "info"}
        assert len(suite.expectations) >= 10


def test_an_expectation_that_gx_does_not_know_is_refused(tmp_path: Path) -> None:
    found = problems(tmp_path, {"type": "expect_wonders", "kwargs": {}})
    assert "expectations[0]: expect_wonders" in found
    assert "not found" in found


def test_all_problems_of_a_suite_are_reported_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        {"type": "expect_column_values_to_be_unique", "kwargs": {"colum": "id"}},
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "idd"}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "home.town"}},
        {"type": "expect_table_row_count_to_equal", "kwargs": {"value": {"$PARAMETER": "rows_of_yesterday"}}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "home.city"}},
        {"type": "expect_column_max_to_be_between", "kwargs": {"column": "_ingested_at", "min_value": {"$PARAMETER": "now()"}}},
    )
    assert found.startswith("4 problems")
    assert "no column idd (is id meant?)" in found
    assert "no column home.town" in found
    assert "unknown parameter 'rows_of_yesterday'" in found


def test_a_file_that_is_not_a_suite_is_refused(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"name": "t"}', '{"name": "t", "expectations": []}'):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(InvalidInput) as refused:
            load_suites(tmp_path, [contract_of()])
        assert refused.value.code == "SUITE_INVALID", text


def test_a_missing_suite_is_refused_and_a_contract_without_one_only_if_requested(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_suites(tmp_path, [contract_of()])
    assert refused.value.code == "SUITE_NOT_FOUND"
    write(tmp_path, EXISTS)
    without = contract_of(table="other", suite=None)
    assert len(load_suites(tmp_path, [contract_of(), without])) == 1
    with pytest.raises(InvalidInput) as refused:
        load_suites(tmp_path, [without], named=True)
    assert refused.value.code == "SUITE_MISSING"


def test_a_run_notes_which_table_it_does_not_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, EXISTS)
    watch = _watch(tmp_path, [contract_of(), contract_of(table="other", suite=None)], quiet=True)
    assert list(watch.suites) == ["t.people"]
    assert capsys.readouterr().err == "note: t.other is not checked: its contract names no suite\n"


def test_a_changed_suite_has_another_hash(tmp_path: Path) -> None:
    def hash_of(*expectations: Mapping[str, Any]) -> str:
        write(tmp_path, *expectations)
        return load_suites(tmp_path, [contract_of()])[0].hash

    assert hash_of(EXISTS) == hash_of(EXISTS) != hash_of(EXISTS, {**EXISTS, "kwargs": {"column": "name"}})


def test_sensitivity_and_quality_are_not_part_of_the_contracts_hash() -> None:
    plain = [
        {"name": "id", "type": "STRING", "nullable": False},
        {"name": "name", "type": "STRING"},
        {"name": "home", "type": "STRUCT<city: STRING>"},
    ]
    assert contract_of().hash == contract_of(columns=plain, quality="stop").hash


RUN = ("run", "--once", "--check")


@pytest.mark.parametrize(
    ("verb", "expectation", "code", "says"),
    [
        (("check",), {"type": "expect_wonders", "kwargs": {}}, "SUITE_INVALID", "expect_wonders"),
        (RUN, {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "idd"}}, "SUITE_INVALID", "no column idd (is id meant?)"),
        (("check",), None, "SUITE_NOT_FOUND", "s.json"),
        (RUN, None, "SUITE_NOT_FOUND", "s.json"),
    ],
    ids=["an expectation that GX does not know", "a column that the table does not have", "no file to check", "no file for a run"],
)
def test_the_commands_refuse_an_invalid_suite_before_spark_starts(
    tmp_path: Path, verb: tuple[str, ...], expectation: dict[str, Any] | None, code: str, says: str
) -> None:
    (tmp_path / "tables").mkdir()
    described = contract_of().model_dump(mode="json", exclude_none=True)
    (tmp_path / "tables" / "people.yml").write_text(json.dumps(described))  # JSON is YAML
    if expectation is not None:
        write(tmp_path, expectation)
    words = [*verb, "people", "--json", "--project", str(tmp_path), "--lake", str(tmp_path / "lake")]
    words += ["--checkpoints", str(tmp_path / "checkpoints")]
    # Without Java, starting Spark would be the error.
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME" and not name.startswith("INGEST_")} | {"PATH": ""}
    ended = subprocess.run([sys.executable, "-m", "ingest", *words], cwd=PROJECT, env=bare, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    error = json.loads(ended.stdout)["error"]
    assert (error["code"], says in error["found"]) == (code, True)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("sensitive", [True, False])
def test_a_failed_check_is_reported_without_the_values_that_its_error_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sensitive: bool
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise TypeError("'Ada Lovelace' is of type x\nand more")

    monkeypatch.setattr("ingest.quality.validation.check", broken)
    monkeypatch.setattr("ingest.runtime.spark.jvm_exit", lambda _: None)
    columns = [{"name": "id", "type": "STRING", "nullable": False, "sensitive": sensitive}]
    suite, _ = expected_of(tmp_path, EXISTS, columns=columns)
    session: Any = None
    assert check_all(session, [(suite, Places(str(tmp_path), "", "t", "people"))], everything=False, as_json=False) == 5
    err = capsys.readouterr().err
    assert "CHECK_FAILED: t.people: the check was not done: TypeError" in err
    assert ("Ada" in err) != sensitive
