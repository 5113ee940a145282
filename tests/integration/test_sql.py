"""`ingest sql`: both engines return the same answer with the same column names, and neither writes."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from ingest.cli import sql as verb
from ingest.runtime.errors import InvalidInput
from ingest.sql.engine import Ask, with_spark, without_spark
from ingest.sql.question import questions
from tests.integration.interpreted import interpreted
from tests.integration.sql_tables import AMOUNT, TOO_MANY, Made, rules, tables

pytestmark = pytest.mark.integration

PROJECT = Path(__file__).parents[2]
SINCE = datetime(2020, 1, 1, tzinfo=UTC)
Captured = pytest.CaptureFixture[str]
Both = Callable[..., tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    with interpreted(spark):
        return tables(spark, tmp_path_factory.mktemp("sql"))


@pytest.fixture(scope="module")
def engines(spark: SparkSession, made: Made) -> Iterator[tuple[Ask, Ask]]:
    """DataFusion and Spark, over the same tables."""
    with with_spark(spark.newSession(), made[1]) as ask:
        yield without_spark(made[1]), ask


@pytest.fixture
def both(engines: tuple[Ask, Ask]) -> Both:
    """Query both engines. Returns DataFusion's and Spark's rows, and checks that column names and numeric columns are the same."""

    def ask(sql: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        here, there = (engine(sql, None) for engine in engines)
        assert [(column.name, column.numeric) for column in here.columns] == [(column.name, column.numeric) for column in there.columns]
        return list(here.rows()), list(there.rows())

    return ask


@pytest.mark.parametrize("name", sorted(questions()))
def test_every_question_has_the_same_answer_in_both_engines(made: Made, both: Both, name: str) -> None:
    desk, known = made
    question = questions()[name]
    here, there = both(question.of(desk.contract, known, SINCE))
    # Each question has a complete ORDER BY, so the order is part of the answer.
    assert here == there
    assert bool(here) == (name != "ids-twice" and not name.startswith("books-"))


@pytest.mark.parametrize("event_time", ["day", "local"])
def test_the_delay_from_a_date_or_a_time_without_zone_is_the_same_in_both_engines(made: Made, both: Both, event_time: str) -> None:
    here, there = both(questions()["delay-by-hour"].of(rules(event_time), made[1], SINCE))
    assert here == there and here[0][1] == 20


def test_the_questions_report_the_contents_of_the_batches(made: Made, both: Both) -> None:
    desk, known = made

    def answer(name: str) -> list[tuple[Any, ...]]:
        return both(questions()[name].of(desk.contract, known, SINCE))[0]

    # The batches may have been ingested in two different hours.
    assert [sum(column) for column in zip(*(row[1:] for row in answer("rows-by-hour")), strict=True)] == [32, 22, 5, 5]
    assert [row[1:5] for row in answer("duplicates-by-partition")] == [(0, 15, 3, 1), (1, 17, 2, 1)]
    assert [(row[0], row[2], row[3], row[6]) for row in answer("quarantine-by-reason")] == [
        ("malformed_json", 2, 2, "1:12"),
        ("bad_timestamp", 1, 1, "0:14"),
        ("malformed_json", 1, 1, "0:13"),
        ("tombstone", 1, 1, "1:13"),
    ]
    assert sorted((row[2], row[3], row[4], row[7]) for row in answer("quarantined-records")) == [
        (0, 13, "malformed_json", "{"),
        (0, 14, "bad_timestamp", '{"id":"x","at":"5"}'),
        (1, 12, "malformed_json", "no JSON"),
        (1, 13, "tombstone", None),
        (1, 16, "malformed_json", "again no JSON"),
    ]
    assert [(row[0], *row[5:8]) for row in answer("biggest-gaps")] == [("batch", 10, 22, 7), ("batch", 22, 24, 2)]
    changes = [(row[1], row[3], row[6], row[7]) for row in answer("changed-since")]
    batches = [("batch", 2, 20, 20), ("batch", 3, 9, 0), ("batch", 4, 3, 2), ("batch", 5, 0, 0)]
    assert changes == [("first", 1, 0, 0), *batches], "the first start commits its offsets as batch 1"
    assert [row[1:5] for row in answer("partitions")] == [(0, 24, 2, 15), (1, 17, 3, 17)]
    failed = [row[1:] for row in answer("failed-expectations")]
    assert failed[0] == ("critical", TOO_MANY["type"], None, None, None, "22", None, "[]", 6)
    assert failed[1][:7] == ("warning", AMOUNT["type"], "Amount", 2, 22, None, None)
    assert [each["id"] for each in json.loads(failed[1][7])] == ["late", "no time"]
    assert [row[5] for row in failed] == ["22", None, "22"], "the earlier validation run is listed too, because it was after --since"
    late = both(questions()["failed-expectations"].of(desk.contract, known, datetime.now(UTC)))[0]
    assert [row[1:] for row in late] == failed[:2], "the last validation run is always listed, even if it was before --since"
    longest = datetime(2025, 1, 2, 3, 5, 0, 123000, tzinfo=UTC) - datetime(2024, 12, 24, tzinfo=UTC)
    delays = answer("delay-by-hour")
    assert (sum(row[1] for row in delays), max(row[5] for row in delays)) == (21, longest)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM events ORDER BY _partition, _offset",
        "SELECT id, Amount FROM t.events ORDER BY id",
        "SELECT e.id, q.n FROM t.events e CROSS JOIN (SELECT count(*) AS n FROM events__quarantine) q ORDER BY 1;",
        "SELECT `partition`, `offset`, key, value, headers FROM t.events__quarantine ORDER BY 1, 2",
        "SELECT Amount FROM events ORDER BY Amount, id -- NULL comes first",
        "SELECT \"it's\" AS a, '\"' AS b",
        "WITH e AS (SELECT at - INTERVAL '1' HOUR AS earlier FROM events) SELECT max(earlier) AS m FROM e",
        "SELECT count(DISTINCT id) AS n, sum(Amount) AS s FROM events WHERE at >= TIMESTAMP '2025-01-02 01:00:00'",
        # recommended by docs/how-to/sql-questions.md
        "SELECT date_part('hour', at) AS h, CAST(7 AS DOUBLE) / 2 AS q, 1 / nullif(0, 0) AS z FROM events ORDER BY id",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY share) AS p, count(CASE WHEN ok THEN 1 END) AS n FROM events",
        "SELECT id FROM events WHERE regexp_like(id, '^a') ORDER BY id",
        "SELECT cardinality(array_agg(id)) AS n FROM events WHERE at - at < INTERVAL '1' HOUR",
        "SELECT array_agg(Amount) FILTER (WHERE Amount IS NOT NULL) AS a FROM events",
        "SELECT CAST(sum(Amount) AS DOUBLE) / count(Amount) AS a, sum(Amount * CAST('1.1' AS DECIMAL(2,1))) AS s FROM events",
        "SELECT concat(coalesce(place.city, ''), id) AS c, replace(id, 'a', 'b') AS r FROM events ORDER BY id",
        "SELECT place.city AS city, labels['k'] AS k, cardinality(tags) AS n FROM events WHERE ok ORDER BY id",
        "SELECT CASE WHEN tags IS NOT NULL THEN cardinality(tags) END AS n, date_trunc('month', at) AS m FROM events ORDER BY id",
        "SELECT count(*) AS n, max(CAST(_partition AS BIGINT) * 2147483647 * 4) AS most FROM events WHERE _offset % 10 = 0",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY Amount) AS p, CAST('1.005' AS DECIMAL(3,2)) AS d FROM events",
        "SELECT TRY_CAST(id AS INT) AS i, TRY_CAST('1.5' AS INT) AS j, TRY_CAST(300 AS TINYINT) AS k FROM events ORDER BY id",
        "SELECT CAST(day AS TIMESTAMP) - CAST(DATE '2025-01-01' AS TIMESTAMP) AS later FROM events ORDER BY id",
        "SELECT right(id, 2) AS r, left(id, 2) AS l FROM events ORDER BY id",
        "SELECT trim(LEADING 'a' FROM id) AS a, trim(TRAILING '1' FROM id) AS b FROM events ORDER BY id",
        "SELECT ln(nullif(_partition, 0)) AS x FROM events ORDER BY id",
    ],
)
def test_the_same_query_has_the_same_answer_in_both_engines(both: Both, sql: str) -> None:
    here, there = both(sql)
    assert here == there and here


@pytest.mark.parametrize(
    "sql, code, says",
    [
        ("SELECT * FROM evnts", "SQL_TABLE_UNKNOWN", "there is no table evnts"),
        ("SELECT * FROM t.nope", "SQL_TABLE_UNKNOWN", "there is no table t.nope"),
        ("SELECT nope FROM events", "SQL_FAILED", "nope"),
        ("SELECT FROM WHERE", "SQL_FAILED", ""),
        ("SELECT raise_error('x'), nope(1)", "SQL_FAILED", ""),
        ("DROP TABLE events", "SQL_NOT_A_QUERY", "DROP"),
    ],
)
def test_an_error_is_one_sentence_with_a_code(
    engines: tuple[Ask, Ask], capfd: pytest.CaptureFixture[str], sql: str, code: str, says: str
) -> None:
    for ask in engines:
        with pytest.raises(InvalidInput) as caught:
            list(ask(sql, None).rows())
        assert caught.value.code == code and says.lower() in caught.value.found.lower()
        assert "\n" not in caught.value.found and "SQLSTATE" not in caught.value.found
        if code == "SQL_TABLE_UNKNOWN":
            assert "events, events__ledger, events__quality, events__quarantine" in caught.value.expected
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{}' STORED AS CSV",
        "WITH x AS (SELECT * FROM events) INSERT INTO events SELECT * FROM x",
        "DELETE FROM events",
        "INSERT OVERWRITE DIRECTORY '{}' USING csv SELECT 1",
    ],
)
def test_no_statement_that_writes_reaches_an_engine(engines: tuple[Ask, Ask], made: Made, tmp_path: Path, sql: str) -> None:
    out = tmp_path / "out"
    before = sorted(path for path in Path(made[0].places.lake).rglob("*"))
    for ask in engines:
        with pytest.raises(InvalidInput, match=r"SQL_NOT_A_QUERY|SQL_FAILED: Syntax error"):  # COPY is no SQL for Spark
            ask(sql.format(out), None)
    assert not out.exists() and sorted(path for path in Path(made[0].places.lake).rglob("*")) == before


def test_each_engine_turns_array_elements_into_rows_with_its_own_function(engines: tuple[Ask, Ask]) -> None:
    answers = [
        list(engine(f"SELECT id, {function}(tags) AS tag FROM events WHERE id = 'a1' ORDER BY tag", None).rows())
        for engine, function in zip(engines, ("unnest", "explode"), strict=True)
    ]
    assert answers == [[("a1", "a"), ("a1", "b")]] * 2


class Done(NamedTuple):
    """The result of a command, and how long it took."""

    code: int
    out: str
    error: str
    seconds: float


@pytest.fixture
def project(made: Made, tmp_path: Path) -> Path:
    """A project with the tables' contract."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "events.yml").write_text(made[0].contract.to_json())  # JSON is YAML
    return tmp_path


@pytest.fixture
def ingest(made: Made, project: Path) -> Callable[..., Done]:
    """Runs `ingest sql` on the project, in a separate process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INGEST_") or name == "INGEST_CACHE"}

    def run(*words: str) -> Done:
        command = [sys.executable, "-m", "ingest", "sql", *words, "--lake", made[0].places.lake, "--project", str(project)]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, check=False, timeout=120, cwd=PROJECT, env=environment)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode(), time.monotonic() - started)

    return run


def test_the_command_prints_a_table_csv_or_json(ingest: Callable[..., Done], record_property: Callable[[str, object], None]) -> None:
    sql = "SELECT id, Amount, at, place, value FROM events LEFT JOIN (SELECT value FROM events__quarantine WHERE value IS NULL) q ON true"
    sql += " ORDER BY _partition, _offset"
    done = ingest(sql, "--json")
    assert (done.code, done.error) == (0, "")
    record_property("seconds", round(done.seconds, 2))
    document = json.loads(done.out)
    assert (document["schema"], document["ok"], document["tables"], document["error"]) == ("oncelake/sql/1", True, [], None)
    assert [column["type"] for column in document["columns"]] == [
        "STRING",
        "DECIMAL(18,2)",
        "TIMESTAMP",
        "STRUCT<city: STRING, since: TIMESTAMP>",
        "BINARY",
    ]
    assert document["rows"][0] == ["a0", "12.50", "2025-01-02T00:00:00Z", {"city": "Łódź", "since": "2024-12-31T23:00:00Z"}, None]

    done = ingest(sql, "--format", "csv")
    rows = list(csv.reader(io.StringIO(done.out, newline="")))
    assert rows[0] == ["id", "Amount", "at", "place", "value"] and len(rows) == 23
    assert rows[1][:3] == ["a0", "12.50", "2025-01-02T00:00:00Z"] and "\r\n" in done.out

    done = ingest("SELECT id, Amount FROM events ORDER BY id DESC", "--limit", "2")
    assert [line.split() for line in done.out.splitlines()[:1] + done.out.splitlines()[2:]] == [
        ["id", "Amount"],
        ["no", "time", "NULL"],
        ["late", "NULL"],
        ["2", "rows,", "and", "there", "are", "more:", "--limit", "shows", "them"],
    ]


def test_the_command_accepts_questions_versions_and_files_and_reports_errors(ingest: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("-- how many\nSELECT count(*) AS n FROM events;\n")
    done = ingest("--file", str(tmp_path / "q.sql"), "--at", "3", "--json")
    assert json.loads(done.out)["rows"] == [[20]]
    done = ingest("--file", str(tmp_path / "q.sql"), "--at", "1999-01-01", "--format", "json")
    assert (done.code, json.loads(done.out)["error"]["code"]) == (2, "SQL_TABLE_UNKNOWN")
    assert "t.events is left out: it was created at" in done.error and "Traceback" not in done.error
    done = ingest("--question", "rows-by-hour", "--format", "csv")
    hours = [[int(cell) for cell in line.split(",")[1:]] for line in done.out.splitlines()[1:]]
    assert [sum(column) for column in zip(*hours, strict=True)] == [32, 22, 5, 5]
    done = ingest("--tables")
    assert "events (also t.events), version 6" in done.out and "  Amount" in done.out
    done = ingest("DROP TABLE events")
    assert done.code == 2 and [line.split(":")[0].strip() for line in done.error.splitlines()] == ["ingest", "expected", "to mend"]


SAME = ("SELECT * FROM t.events ORDER BY _partition, _offset", "--json")


def test_the_command_prints_the_same_document_with_spark(
    ingest: Callable[..., Done], project: Path, made: Made, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    """This test uses the tests' session. The next test lets the command start one."""
    monkeypatch.setattr("ingest.runtime.spark.start", lambda *_, **__: spark.newSession())
    monkeypatch.setattr("ingest.runtime.spark.end", lambda _: None)
    capfd.readouterr()
    verb.sql(statement=SAME[0], as_json=True, with_spark=True, project=project, lake=made[0].places.lake)
    there = json.loads(capfd.readouterr().out)
    assert there == json.loads(ingest(*SAME).out)


@pytest.mark.slow
def test_the_command_starts_its_own_spark_and_prints_only_the_document(ingest: Callable[..., Done]) -> None:
    here, there = ingest(*SAME), ingest(*SAME, "--spark", "--master", "local[1]")
    assert there.code == 0, there.error
    assert json.loads(there.out) == json.loads(here.out)
