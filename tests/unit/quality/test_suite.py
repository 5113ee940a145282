"""Suites are checked against GX and the contract before a run starts. GX itself would skip what it does not know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.cli.check import check_all
from ingest.cli.run import _watch
from ingest.contract.definition import Contract, load_contracts
from ingest.quality import gx
from ingest.quality.suite import Expected, Suite, load_suites
from ingest.quality.validation import POSITION, binary_columns, shown_ids
from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]


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


def test_unique_ids_row_counts_and_expectations_marked_so_cover_the_whole_table() -> None:
    (orders,) = load_suites(PROJECT, load_contracts(PROJECT, ["orders"]))
    whole = {each.type for each in orders.expectations if each.whole}
    assert whole == {"expect_column_values_to_be_unique", "expect_table_row_count_to_equal", "expect_column_max_to_be_between"}


@pytest.mark.parametrize(
    "kind", ["expect_column_proportion_of_unique_values_to_be_between", "expect_column_unique_value_count_to_be_between"]
)
def test_a_count_of_distinct_values_covers_the_whole_table_too(tmp_path: Path, kind: str) -> None:
    """On new rows alone, an id that the table already contains would still have a proportion of 1."""
    _, expected = expected_of(tmp_path, {"type": kind, "kwargs": {"column": "id", "min_value": 1}})
    assert expected.whole


def test_an_expectation_that_gx_does_not_know_is_refused(tmp_path: Path) -> None:
    found = problems(tmp_path, {"type": "expect_wonders", "kwargs": {}})
    assert "expectations[0]: expect_wonders" in found
    assert "not found" in found


def test_a_parameter_for_mostly_is_accepted_but_does_not_judge_single_rows(tmp_path: Path) -> None:
    config = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "name", "mostly": {"$PARAMETER": "ledger_rows"}}}
    write(tmp_path, config, {**config, "kwargs": {"column": "name"}})
    (suite,) = load_suites(tmp_path, [contract_of()])
    assert [each.exact for each in suite.expectations] == [False, True]


def expected_of(tmp_path: Path, config: Mapping[str, Any], **contract: Any) -> tuple[Suite, Expected]:
    write(tmp_path, config)
    (suite,) = load_suites(tmp_path, [contract_of(**contract)])
    return suite, suite.expectations[0]


@pytest.mark.parametrize(
    "condition",
    [
        "nme = 'name'",
        "id IN ('a') AND NOT nme IS NULL OR home.city = `nme`",
        'col("id").notNull() and col("nme") == "name"',
        {"type": "comparison", "column": {"name": "nme"}, "operator": "==", "parameter": "name"},
        {"type": "and", "conditions": [{"type": "nullity", "column": {"name": "nme"}, "is_null": False}]},
        {"type": "pass_through", "pass_through_filter": "nme = 'x'"},
    ],
)
@pytest.mark.filterwarnings("ignore:.*(row_condition|condition_parser):DeprecationWarning")  # GX accepts text until 2.0
def test_a_column_that_only_a_row_condition_names_must_exist_too(tmp_path: Path, condition: Any) -> None:
    kwargs = {"column": "id", "value_set": ["a"], "row_condition": condition}
    found = problems(tmp_path, {"type": "expect_column_values_to_be_in_set", "kwargs": kwargs})
    assert "the table has no column nme (is name meant?)" in found
    right = json.loads(json.dumps(kwargs).replace("nme", "name"))
    expected_of(tmp_path, {"type": "expect_column_values_to_be_in_set", "kwargs": right})


@pytest.mark.parametrize(
    "condition", ["_ingested_at < current_date", "exists(split(name, ' '), part -> part = 'x')", "name = = 'x'", "name LIKE ALL ("]
)
@pytest.mark.filterwarnings("ignore:.*(row_condition|condition_parser):DeprecationWarning")  # GX accepts text until 2.0
def test_a_row_condition_without_an_unknown_column_is_left_to_its_engine(tmp_path: Path, condition: str) -> None:
    kwargs = {"column": "id", "value_set": ["a"], "row_condition": condition, "condition_parser": "spark"}
    expected_of(tmp_path, {"type": "expect_column_values_to_be_in_set", "kwargs": kwargs})


@pytest.mark.filterwarnings("ignore:.*(row_condition|condition_parser):DeprecationWarning")  # GX accepts text until 2.0
def test_an_expectation_on_some_rows_does_not_pass_with_the_count_of_all_rows(tmp_path: Path) -> None:
    some = {"row_condition": "id = 'a'", "condition_parser": "spark"}
    _, expected = expected_of(tmp_path, {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id", **some}})
    assert (expected.exact, expected.open_ended) == (False, True)


@pytest.mark.parametrize(
    "config",
    [
        {"type": "expect_table_columns_to_match_ordered_list", "kwargs": {"column_list": ["id", "name"]}},
        {"type": "expect_table_columns_to_match_set", "kwargs": {"column_set": ["id", "name"]}},
        {"type": "expect_table_column_count_to_equal", "kwargs": {"value": 2}},
    ],
)
def test_the_tables_shape_is_checked_on_all_columns_and_hides_no_value(tmp_path: Path, config: Mapping[str, Any]) -> None:
    """On a frame with only the named columns, a list that lacks one of the table's columns would pass."""
    suite, expected = expected_of(tmp_path, config)
    assert expected.open_ended
    assert not expected.touches(suite.sensitive)


def test_an_expectation_that_may_read_any_column_is_sensitive_only_if_a_column_is(tmp_path: Path) -> None:
    query = {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE id = 'x'"}}
    plain = [{"name": "id", "type": "STRING", "nullable": False}]
    for more, touched in (({}, True), ({"columns": plain}, False), ({"columns": plain, "unknown_fields": "keep"}, True)):
        suite, expected = expected_of(tmp_path, query, **more)
        assert expected.touches(suite.sensitive) == touched, more


def test_the_event_id_of_a_raw_table_is_as_sensitive_as_the_records_key(tmp_path: Path) -> None:
    raw = {"source": {"topic": "people", "format": "raw"}, "columns": [], "event_id": "key"}
    unique = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "_event_id"}}
    suite, expected = expected_of(tmp_path, unique, **raw)
    assert expected.touches(suite.sensitive)
    assert shown_ids(suite) == POSITION


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("STRING", ("id",)),
        ("BIGINT", ("id",)),
        ("DATE", ("id",)),
        ("DECIMAL(38,0)", POSITION),
        ("TIMESTAMP", POSITION),
        ("BINARY", POSITION),
    ],
)
def test_a_row_whose_id_gx_would_change_or_fail_on_is_shown_by_its_position(tmp_path: Path, kind: str, shown: tuple[str, ...]) -> None:
    columns = [{"name": "id", "type": kind, "nullable": False}]
    suite, _ = expected_of(tmp_path, {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}, columns=columns)
    assert shown_ids(suite) == shown


def test_binary_columns_are_found_even_if_only_a_nested_part_is_binary(tmp_path: Path) -> None:
    columns = [
        {"name": name, "type": kind, "nullable": name != "id"}
        for name, kind in {"id": "STRING", "b": "BINARY", "s": "STRUCT<x: ARRAY<BINARY>>", "n": "INT"}.items()
    ]
    suite, _ = expected_of(tmp_path, {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}, columns=columns)
    assert binary_columns(suite) == {"b", "s"}


class OnPandas(gx.Runner):
    """The runner on a pandas frame, which needs no Spark. It handles GX's results in the same way."""

    def __init__(self) -> None:
        self._name, self._context, self._runs = "t", gx.context(), 0
        source = self._context.data_sources.add_pandas(name="frames")
        self._data = source.add_dataframe_asset("t").add_batch_definition_whole_dataframe("rows")


def test_unexpected_binary_values_do_not_end_the_run() -> None:
    """GX cannot serialize the bytearray that PySpark returns for BINARY, and all its results would be lost."""
    frame = pa.table({"id": ["a", "b"], "n": ["", ""]}).to_pandas().assign(n=[bytearray(b"\xff"), bytearray(b"x")])
    config = {"type": "expect_column_values_to_be_null", "kwargs": {"column": "n"}}
    runner = OnPandas()
    with pytest.raises(TypeError, match="cannot be serialized"):
        runner.run([config], frame, {}, form=gx.SUMMARY, index=("id",), samples=10)
    (found,) = runner.run([config], frame, {}, form=gx.SUMMARY, index=("id",), samples=10, values=False)
    assert found["result"]["unexpected_count"] == 2
    assert found["result"]["partial_unexpected_index_list"] == [{"id": "a"}, {"id": "b"}]


def test_an_expectation_that_was_copied_with_its_id_is_evaluated_separately() -> None:
    """Results are found by id. GX creates new ids for every run; an id in a file may occur twice."""
    frame = pa.table({"n": [1, 1]}).to_pandas()
    configs = [
        {
            "type": "expect_column_values_to_be_in_set",
            "kwargs": {"column": "n", "value_set": [n]},
            "id": "da59726d-f30c-4453-93c7-a4b3dadf5542",
        }
        for n in (9, 1)
    ]
    found = OnPandas().run(configs, frame, {}, form=gx.SUMMARY, index=(), samples=10)
    assert [each["success"] for each in found] == [False, True]


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


def test_analytics_of_gx_are_disabled() -> None:
    made = gx.context()
    assert made.config.analytics_enabled is False
    assert os.environ["GX_ANALYTICS_ENABLED"] == "false"
    assert made.mode == "ephemeral"


def test_gx_and_pyspark_do_not_log_errors_to_stderr() -> None:
    """PySpark logs an error when it creates it (pyspark.errors.exceptions.base). The loggers of a new process are unconfigured."""
    statement = "logger = PySparkLogger.getLogger(name); logger.propagate = False; logger.exception('Ada Lovelace')"
    code = f"""
import logging, sys
from pyspark.logger import PySparkLogger
from ingest.quality import gx
if sys.argv[1:]:
    gx.context()
    logging.getLogger("great_expectations.execution_engine").error("Ada Lovelace")
for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    {statement}
"""
    for more, found in (((), True), (("with GX",), False)):
        ended = subprocess.run([sys.executable, "-c", code, *more], cwd=PROJECT, capture_output=True, text=True, check=True)
        assert ("Ada" in ended.stdout + ended.stderr) == found


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
