"""Validation runs on real Delta tables: failures are named, new rows are covered, sensitive values appear nowhere."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Row, SparkSession

from ingest.cli.check import check_all, suggest
from ingest.contract.definition import Contract
from ingest.quality import validation as module
from ingest.quality.audited_version import audit_state, release
from ingest.quality.control_total import Sums, Totals
from ingest.quality.duckdb_rows import DuckDBRows
from ingest.quality.spark_rows import SparkRows
from ingest.quality.suggest import suggest_suite
from ingest.quality.suite import Suite, load_suites
from ingest.quality.validation import Checked, check
from ingest.quality.validation_result import HIDDEN, sample_ids
from ingest.quality.watch import CheckSchedule
from ingest.run import table_lock
from ingest.runtime import numbered_files
from ingest.runtime.errors import InvalidInput, Refused
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import pages_folder
from ingest.sql.catalog import catalog
from ingest.sql.engine import with_spark
from tests.integration.desk import Desk
from tests.integration.lane import order
from tests.integration.suites import AMOUNT, COLUMNS, COUNT, FRESH, STATUS, UNIQUE, suite_of

pytestmark = pytest.mark.integration


@contextmanager
def outside_connections() -> Iterator[list[str]]:
    """The connections and name lookups outside this machine, as reported to a Python audit hook."""
    called: list[str] = []
    listening = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening and event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
            where = str(arguments[1:] if event != "socket.getaddrinfo" else arguments[:1])
            if not any(home in where for home in ("127.0.0.1", "localhost", "::1", "None")):
                called.append(f"{event} {where}")

    sys.addaudithook(hook)  # permanent: Python cannot remove an audit hook
    try:
        yield called
    finally:
        listening.clear()


@pytest.fixture(params=["duckdb", "spark"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine of all checks of a test. DuckDB's must not ask for a Spark session."""
    if request.param == "spark":
        monkeypatch.setenv("INGEST_DUCKDB_ROWS", "0")
    return str(request.param)


def session_of(desk: Desk, engine: str) -> Callable[[], SparkSession]:
    return (lambda: desk.session) if engine == "spark" else lambda: pytest.fail("the check asked for a Spark session")


def checked(desk: Desk, suite: Suite, engine: str, **more: Any) -> Checked:
    found = check(session_of(desk, engine), suite, desk.places, **more)
    assert (found.engine, {row.engine for row in found.rows} <= {engine}) == (engine, True)
    return found


def quality(desk: Desk) -> list[Row]:
    return desk.session.read.format("delta").load(desk.places.quality).orderBy("run_at", "number").collect()


def sql(desk: Desk, statement: str) -> None:
    """Run a user's statement on the target; `{}` in it becomes the table."""
    desk.session.sql(statement.replace("{}", f"delta.`{desk.places.target}`")).collect()


def by_type(found: Checked) -> dict[str, Any]:
    return {row.expectation: row for row in found.rows}


@pytest.mark.slow
def test_a_good_table_passes_opens_no_outside_connection_and_stores_its_results(desk: Callable[..., Desk], engine: str) -> None:
    table = desk(COLUMNS)
    table.batch(*(order(f"a{n}", status="paid", amount=n) for n in range(20)))
    with outside_connections() as called:
        found = checked(table, suite_of(table, [UNIQUE, COUNT, STATUS, AMOUNT, FRESH]), engine)
    assert called == []
    assert [row.success for row in found.rows] == [True] * 5, found.rows
    assert found.scope.name == "whole"
    assert not found.failed
    rows = quality(table)
    assert (rows[0]["expectation"], rows[0]["success"], rows[0]["scope"]) == (UNIQUE["type"], True, "whole")
    assert {row["version_to"] for row in rows} == {found.scope.version}
    assert [row["unexpected_count"] for row in rows] == [0, None, 0, 0, None]
    assert [row["element_count"] for row in rows] == [20, None, 20, 20, None]
    assert DeltaTable(table.places.quality).to_pyarrow_table().num_rows == 5
    assert found.page is not None
    assert found.page.is_file()
    assert (pages_folder(table.places) / "index.html").is_file()


def test_the_results_table_has_its_own_lock(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_LOCK_WAIT_S", "0.1")
    with table_lock.alone(spark, str(tmp_path), str(tmp_path / ".quality")):
        with pytest.raises(Refused) as refused, table_lock.alone(spark, str(tmp_path), str(tmp_path / ".quality")):
            pass
        assert refused.value.code == "LOCKED"
    with table_lock.alone(spark, str(tmp_path), str(tmp_path / ".quality")):
        pass


@pytest.mark.slow
def test_failures_name_their_event_ids_and_only_critical_ones_fail_the_check(
    desk: Callable[..., Desk], capfd: pytest.CaptureFixture[str], engine: str
) -> None:
    table = desk(COLUMNS)
    table.batch(
        *(order(f"a{n}", status="paid", amount=n) for n in range(9)), order("bad", status="lost", amount=1), order("low", amount=-3)
    )
    suite = suite_of(table, [STATUS, AMOUNT])
    found = checked(table, suite, engine)
    rows = by_type(found)
    assert sample_ids(rows[STATUS["type"]]) == ["bad"]
    assert json.loads(rows[STATUS["type"]].unexpected_values) == ["lost"]
    assert (rows[STATUS["type"]].unexpected_count, rows[STATUS["type"]].element_count) == (1, 11)
    assert sample_ids(rows[AMOUNT["type"]]) == ["low"]
    assert [row.expectation for row in found.critical] == [STATUS["type"]]
    assert found.page is not None
    text = found.page.read_text(encoding="utf-8")
    assert "lost" in text and engine in text
    capfd.readouterr()
    assert check_all(session_of(table, engine), [(suite, table.places)], everything=True, as_json=False) == 1
    output = capfd.readouterr().out
    assert "t.events: FAILED (0 of 2 expectations; all rows at version 3 (asked for)" in output
    assert "! critical: expect_column_values_to_be_in_set (status): 1 of 11 rows, such as bad" in output
    assert "/docs/t/events/validations/" in output
    # A failure below severity critical is reported, but the exit code is 0.
    assert check_all(session_of(table, engine), [(suite_of(table, [AMOUNT]), table.places)], everything=True, as_json=True) == 0
    document = json.loads(capfd.readouterr().out)
    assert (document["schema"], document["ok"]) == ("oncelake/check/1", True)
    assert document["tables"][0]["expectations"][0]["samples"] == [{"id": "low"}]


@pytest.mark.slow
def test_only_new_rows_are_checked_but_uniqueness_and_counts_cover_the_whole_table(desk: Callable[..., Desk], engine: str) -> None:
    table = desk(COLUMNS)
    suite = suite_of(table, [UNIQUE, COUNT, STATUS])
    table.batch(order("old", status="lost"), order("a1", status="paid"))
    assert not by_type(checked(table, suite, engine))[STATUS["type"]].success
    table.batch(order("a2", status="paid"), order("a3", status="paid"))
    sql(table, "OPTIMIZE {}")
    found = checked(table, suite, engine)
    rows = by_type(found)
    assert (found.scope.name, rows[STATUS["type"]].scope, rows[STATUS["type"]].element_count) == ("new", "new", 2)
    assert rows[STATUS["type"]].success
    assert (rows[UNIQUE["type"]].scope, rows[UNIQUE["type"]].element_count) == ("whole", 4)
    assert rows[COUNT["type"]].observed == "4"
    sql(table, "INSERT INTO {} SELECT * FROM {} WHERE id = 'a1'")
    found = checked(table, suite, engine)
    assert found.scope.name == "whole"
    rows = by_type(found)
    assert sample_ids(rows[UNIQUE["type"]]) == ["a1", "a1"]
    assert (rows[COUNT["type"]].success, rows[COUNT["type"]].observed, json.loads(rows[COUNT["type"]].arguments)) == (
        False,
        "5",
        {"value": 4},
    )
    sql(table, "DELETE FROM {} WHERE id = 'old'")
    assert [row.scope for row in checked(table, suite, engine, at_work=True).rows] == []


@pytest.mark.slow
def test_a_check_of_new_rows_reads_only_files_that_can_contain_them(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    table = desk(COLUMNS, partitions=2)
    suite = suite_of(table, [STATUS])
    for n in range(3):
        table.batch(order(f"a{n}", status="paid"))
    table.batch(order("elsewhere", status="paid"), partition=1)
    checked(table, suite, engine)
    table.batch(order("new", status="lost"))
    read: list[int] = []
    kind: Any = SparkRows if engine == "spark" else DuckDBRows
    made = kind.view

    def seen(rows: Any, name: str, slices: Any) -> Any:
        view = made(rows, name, slices)
        files = (
            rows.connection.execute("SELECT DISTINCT file_name FROM parquet_file_metadata(?)", [rows.paths(slices)]).fetchall()
            if engine == "duckdb"
            else view.inputFiles()
        )
        read.append(len(files))
        return view

    monkeypatch.setattr(kind, "view", seen)
    found = checked(table, suite, engine)
    assert (sample_ids(found.rows[0]), found.scope.name) == (["new"], "new")
    assert (read, len(table.target().inputFiles())) == ([1], 5)


@pytest.mark.slow
def test_unexpected_bytes_are_counted_and_their_rows_named(desk: Callable[..., Desk], engine: str) -> None:
    table = desk({"b": "BINARY", "n": "INT"})
    table.batch(order("a", b="/w==", n=1), order("b", n=-1))
    empty: dict[str, Any] = {"type": "expect_column_values_to_be_null", "kwargs": {"column": "b"}}
    found = checked(table, suite_of(table, [empty, {**AMOUNT, "kwargs": {"column": "n", "min_value": 0}}, COUNT]), engine)
    first, second, count = found.rows
    assert (first.success, first.unexpected_count, first.unexpected_values, sample_ids(first)) == (False, 1, None, ["a"])
    assert (second.unexpected_values, sample_ids(second), count.success) == ("[-1]", ["b"], True), "values of other columns are still shown"
    assert found.page is not None


@pytest.mark.slow
def test_an_expectation_with_a_row_condition_counts_only_the_matching_rows(desk: Callable[..., Desk]) -> None:
    table = desk(COLUMNS)
    table.batch(*(order(f"a{n}", status="paid", amount=n) for n in range(5)), order("b", status="lost", amount=7))
    some = {"row_condition": "status = 'paid'", "condition_parser": "spark"}
    listed: dict[str, Any] = {"type": "expect_table_columns_to_match_ordered_list", "kwargs": {"column_list": ["id", "status"]}}
    said: list[str] = []
    found = checked(table, suite_of(table, [{**AMOUNT, "kwargs": {**AMOUNT["kwargs"], **some}}, listed]), "spark", say=said.append)
    assert said == [
        "t.events is checked by Spark: expectations[0] of suite.json, " + AMOUNT["type"] + ", has a row condition in Spark's SQL"
    ]
    rows = by_type(found)
    assert (rows[AMOUNT["type"]].success, rows[AMOUNT["type"]].element_count) == (True, 5)
    assert not rows[listed["type"]].success, "the table has more columns than the list"
    assert found.page is not None


SECRETS = ("Ada Lovelace", "Grace Hopper")


def test_sensitive_values_appear_in_no_page_and_no_result(
    desk: Callable[..., Desk], capfd: pytest.CaptureFixture[str], engine: str
) -> None:
    columns = {"status": "STRING", "name": "STRING", "home": "STRUCT<city: STRING>"}
    table = desk(columns)
    described = [
        {"name": n, "type": t.removesuffix("!"), "nullable": n != "id", "sensitive": n in ("name", "home")}
        for n, t in {"id": "STRING", **columns}.items()
    ]
    on_name = {"column": "name"}
    some = {"row_condition": 'col("name") == "q"', "condition_parser": "great_expectations"}
    # DuckDB refuses to compare a text with a number; in Spark that is NULL.
    raising = {"row_condition": 'col("name") > 5', "condition_parser": "great_expectations"}
    suite = suite_of(
        table,
        [
            {"type": "expect_column_values_to_match_regex", "kwargs": {**on_name, "regex": "^[a-z]+$"}},
            {"type": "expect_column_distinct_values_to_be_in_set", "kwargs": {**on_name, "value_set": ["nobody"]}},
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "home.city"}},
            {"type": "expect_column_value_lengths_to_equal", "kwargs": {"column": "home.city", "value": 2}},
            {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "status", "value_set": ["x"], **some}},
            {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "status", "value_set": ["x"], **raising}},
        ],
        columns=described,
    )
    table.batch(
        order("e1", name=SECRETS[0], status="s", home={"city": SECRETS[1]}), order("e2", name=SECRETS[1], home={"city": SECRETS[0]})
    )
    found = checked(table, suite, engine)
    assert [row.success for row in found.rows][:4] == [False, False, True, False]
    assert [row.exception for row in found.rows] == [None] * 5 + [HIDDEN if engine == "duckdb" else None]
    assert sample_ids(found.rows[0]) == ["e1", "e2"]
    assert all(row.sensitive for row in found.rows)
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in pages_folder(table.places).rglob("*") if path.is_file()]
    texts += [str(row) for row in quality(table)] + [str(found), *capfd.readouterr()]
    assert len(texts) > 5
    for secret in SECRETS:
        assert not any(secret in text for text in texts)


@pytest.mark.slow
def test_a_check_that_was_locked_out_during_a_run_is_reported_and_retried(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    table = desk(COLUMNS)
    name = table.places.name
    reports: list[tuple[str, str]] = []
    shown: list[Checked] = []
    watch = CheckSchedule({name: suite_of(table, [STATUS])}, shown.append, lambda *what: reports.append(what), every_s=0.0)
    watch.saw(table.batch(order("a", status="paid")))
    monkeypatch.setenv("INGEST_LOCK_WAIT_S", "0.1")
    with table_lock.alone(table.session, table.places.lake, f"{table.places.root}/.quality"):
        assert watch.check(table.session, table.places, at_work=True) is None
        assert (reports, shown, watch.due(name)) == ([(name, "LOCKED")], [], True)
        error = watch.check(table.session, table.places, at_work=False)
        assert error is not None and error.code == "LOCKED", "at the end of the run it is the run's error"
    assert watch.check(table.session, table.places, at_work=True) is None
    assert [each.failed for each in shown] == [()]


@pytest.mark.slow
def test_a_suggested_suite_passes_on_its_own_table_and_shows_no_sensitive_value(
    desk: Callable[..., Desk], tmp_path: Path, engine: str
) -> None:
    columns: list[dict[str, Any]] = [
        {"name": "id", "type": "STRING", "nullable": False},
        {"name": "status", "type": "STRING"},
        {"name": "amount", "type": "DECIMAL(10,2)"},
        {"name": "name", "type": "STRING", "sensitive": True},
        {"name": "tags", "type": "ARRAY<STRING>"},
        {"name": "later", "type": "STRING"},  # in the contract, but not in the table yet
    ]
    table = desk({each["name"]: each["type"] for each in columns[1:-1]})
    table.batch(
        *(order(f"a{n}", status=("paid", "placed")[n % 2], amount=f"{n}.50", name=SECRETS[0] if n else None, tags=[]) for n in range(40))
    )
    contract = Contract.model_validate({**json.loads(table.contract.to_json()), "columns": columns, "suite": "suggested.json"})
    text = suggest_suite(table.session, contract, table.places)
    (tmp_path / "suggested.json").write_text(text, encoding="utf-8")
    assert SECRETS[0] not in text and "-0.0" not in text
    kinds = [(each["type"], each["kwargs"].get("column")) for each in json.loads(text)["expectations"]]
    assert ("expect_column_values_to_be_in_set", "status") in kinds
    assert ("expect_column_values_to_be_between", "amount") in kinds
    assert ("expect_column_values_to_not_be_null", "name") in kinds
    assert ("expect_column_values_to_be_in_set", "id") not in kinds
    assert "later" not in {column for _, column in kinds}
    (suite,) = load_suites(tmp_path, [contract])
    found = checked(table, suite, engine)
    assert [row.expectation for row in found.failed] == ["expect_column_max_to_be_between"]  # the desk's batches have timestamps of 2025


@pytest.mark.slow
def test_the_command_writes_a_suite_and_does_not_overwrite_an_existing_one(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command runs in the tests' session, so that no second one is started."""
    table = desk(COLUMNS)
    table.batch(*(order(f"a{n}", status="paid", amount=n) for n in range(20)))
    monkeypatch.setattr("ingest.runtime.spark.start", lambda *_, **__: table.session)
    monkeypatch.setattr("ingest.runtime.spark.end", lambda _: None)
    project = tmp_path / "project"
    (project / "tables").mkdir(parents=True)
    (project / "tables" / "events.yml").write_text(table.contract.to_json())  # JSON is YAML
    places: dict[str, Any] = {"project": project, "lake": table.places.lake, "checkpoints": table.places.checkpoints}
    suggest(table="events", **places)
    path = project / "expectations" / "events.json"
    first = path.read_text(encoding="utf-8")
    kinds = {each["type"] for each in json.loads(first)["expectations"]}
    assert {"expect_column_values_to_be_unique", "expect_table_row_count_to_equal", "expect_column_values_to_be_in_set"} <= kinds
    assert "`suite: expectations/events.json`" in capfd.readouterr().out
    assert load_suites(project, [table.contract.model_copy(update={"suite": "expectations/events.json"})])

    path.write_text("pruned", encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        suggest(table="events", **places)
    assert (refused.value.code, path.read_text(encoding="utf-8")) == ("SUITE_EXISTS", "pruned")
    suggest(table="events", stdout=True, **places)
    assert (capfd.readouterr().out, path.read_text(encoding="utf-8")) == (first, "pruned")
    suggest(table="events", force=True, **places)
    assert path.read_text(encoding="utf-8") == first


@pytest.mark.slow
def test_a_failed_check_holds_the_audited_version_back_even_if_it_is_killed_before_or_after_recording(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], engine: str
) -> None:
    table = desk({**COLUMNS, "at": "TIMESTAMP"})
    total = {"name": "amounts", "sum": ["amount"], "by": ["status"], "day": "at"}
    suite = suite_of(table, [STATUS], quality="hold", control_totals=[total])

    def batch(id: str, status: str, amount: int = 1) -> int:
        table.batch(order(id, status=status, amount=amount, at="2026-11-01T10:00:00Z"))
        return table.log().newest()

    def audited() -> tuple[int | None, bool]:
        state = audit_state(LocalFiles(), table.places)
        return state.audited.version if state.audited else None, state.held is not None

    def killed_in(where: Any, name: str) -> None:
        """A check that dies at this step."""
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(where, name, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt()))
            checked(table, suite, engine)

    first = batch("a1", "paid")
    assert checked(table, suite, engine).passed and audited() == (first, False)
    second = batch("a2", "paid")
    killed_in(numbered_files, "append")
    assert audited() == (first, False), "judged, but not recorded"
    assert not checked(table, suite, engine).rows and audited() == (second, False), "the next check has no new rows, and passes"
    batch("a3", "paid")
    day = date(2026, 11, 1)
    figures: dict[str, Totals] = {"amounts": {(day, ("paid",)): Sums(None, {"amount": Decimal(4)})}}
    assert checked(table, suite_of(table, [STATUS], control_totals=[total]), engine, figures=figures).passed is False
    assert audited() == (second, False), "the suite passes, but a control total differs"
    assert check_all(session_of(table, engine), [(suite, table.places)], everything=False, as_json=True, figures={"t.events": figures}) == 1
    document = json.loads(capfd.readouterr().out)["tables"][0]
    assert (document["ok"], document["totals"][0]["difference"], document["held"]["version"]) == (False, "-1", table.log().newest())
    third = table.log().newest()
    release(LocalFiles(), table.places, third, "Ada L.", "their figure was wrong")
    fourth = batch("bad", "lost")
    killed_in(module, "append_quality")
    assert audited() == (third, True), "the hold was recorded before the results"
    assert not checked(table, suite, engine).passed, "the next check covers the same rows again"
    batch("a4", "paid")
    assert checked(table, suite, engine).passed and audited() == (third, True), "a check of new rows says nothing of the bad one"
    record = Path(table.places.audited)
    record.rename(record.with_name("moved"))
    assert checked(table, suite, engine, at_work=True).passed and audited() == (None, False), "a check during a run records no pass"
    assert not checked(table, suite, engine).passed and audited() == (None, True), "without the record all rows are checked again"
    shutil.rmtree(record)
    record.with_name("moved").rename(record)
    release(LocalFiles(), table.places, fourth, "Ada L.", "known")
    fifth = batch("a5", "paid")
    assert checked(table, suite, engine, at_work=True).passed and audited() == (fourth, False), "a check during a run is not complete"
    assert checked(table, suite, engine).passed and audited() == (fifth, False)
    with with_spark(table.session, catalog([table.contract], table.places.lake, LocalFiles())) as ask:
        batch("a6", "paid")
        assert list(ask("SELECT count(*) FROM events__audited", None).rows()) == [(6,)]


@pytest.mark.slow
def test_copies_of_a_compound_key_are_named_by_their_ids(desk: Callable[..., Desk], engine: str) -> None:
    """GX's SQL finds no ids of such rows."""
    table = desk({"id": "STRING!", "part": "INT!", "on": "DATE!", "amount": "INT"}, event_id=["id", "part", "on"])
    table.batch(*(order(f"a{n}", part=n, on="2026-01-02", amount=1) for n in range(9)))
    sql(table, "INSERT INTO {} SELECT * FROM {} WHERE part IN (3, 5)")
    unique = {"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": ["id", "part", "on"]}}
    (row,) = checked(table, suite_of(table, [unique]), engine).rows
    assert (row.success, row.unexpected_count, row.element_count) == (False, 4, 11)
    assert sorted(sample_ids(row)) == ["a3/3/2026-01-02", "a3/3/2026-01-02", "a5/5/2026-01-02", "a5/5/2026-01-02"]


@pytest.mark.slow
def test_an_older_table_of_results_gets_the_column_of_the_engine_and_another_engine_covers_all_rows(desk: Callable[..., Desk]) -> None:
    table = desk(COLUMNS)
    table.batch(order("a", status="paid"))
    suite, path = suite_of(table, [STATUS]), table.places.quality
    assert check(lambda: table.session, suite, table.places, with_spark=True).engine == "spark"
    old = table.session.read.format("delta").load(path).drop("engine").toArrow()
    write_deltalake(path, old, mode="overwrite", schema_mode="overwrite")
    table.batch(order("b", status="paid"))
    assert checked(table, suite, "duckdb").scope.why == "the last one was done by spark, this one by duckdb"
    table.batch(order("c", status="paid"))
    assert checked(table, suite, "duckdb").scope.name == "new"
    assert check(lambda: table.session, suite, table.places, with_spark=True).scope.name == "whole"
    assert [row["engine"] for row in quality(table)] == [None, "duckdb", "duckdb", "spark"]
