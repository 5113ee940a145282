"""Data Docs in a real browser: they work offline, match the results table, and run no markup that comes from the data."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from ingest.cli.check import print_checked
from ingest.quality import pages
from ingest.quality import validation as module
from ingest.quality.validation import Checked, check
from ingest.runtime.places import pages_folder
from tests.integration import browser
from tests.integration.desk import Desk
from tests.integration.lane import order
from tests.integration.records import contract
from tests.integration.suites import AMOUNT, COLUMNS, COUNT, STATUS, UNIQUE, suite_of

pytestmark = pytest.mark.integration

COMMAND = browser.find()
needs_browser = pytest.mark.skipif(COMMAND is None, reason=f"no browser: none of {', '.join(browser.NAMES)} is installed")
SCRIPT = "<script>document.title = 'taken over'</script><img src=http://127.0.0.1:9/x>"
# What each engine refuses when it evaluates it.
BROKEN: dict[str, dict[str, Any]] = {
    "spark": {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "name", "regex": "(never closed"}},
    "duckdb": {
        "type": "expect_column_values_to_match_regex",
        "kwargs": {"column": "name", "regex": "x", "row_condition": 'col("name") > 5', "condition_parser": "great_expectations"},
    },
}
CAUSES = {"spark": "Unclosed group", "duckdb": "Cannot compare values of type VARCHAR and type INTEGER"}
MIX: dict[str, Any] = {
    "type": "expect_column_kl_divergence_to_be_less_than",
    "kwargs": {"column": "channel", "partition_object": {"values": ["web", "app"], "weights": [0.5, 0.5]}, "threshold": 1},
    "severity": "info",
}
Seen = tuple[Desk, Checked, list[Row]]


@pytest.fixture(scope="module", params=["duckdb", "spark"])
def seen(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A table with rows that break the suite (one status contains markup), the result of its check, and the rows of the results table."""
    table = Desk(spark, contract({**COLUMNS, "channel": "STRING"}), tmp_path_factory.mktemp("seen"))
    good = [order(f"a{n}", status="paid", amount=n, name="x", channel=("web", "app")[n % 2]) for n in range(9)]
    table.batch(*good, order("bad", status=SCRIPT, amount=1, name="x"), order("worse", status="lost", amount=-3, name="x"))
    found = check(lambda: table.session, suite_of(table, [UNIQUE, COUNT, STATUS, AMOUNT, MIX, BROKEN[request.param]]), table.places)
    assert found.engine == request.param
    rows = table.session.read.format("delta").load(table.places.quality).orderBy("number").collect()
    return table, found, rows


@pytest.fixture
def chromium() -> Iterator[browser.Browser]:
    """A browser, closed at the end of the test."""
    assert COMMAND is not None
    with browser.Browser(COMMAND) as running:
        yield running


def cells(chromium: browser.Browser, section: str) -> list[str]:
    """The visible text of the cells of the single expectation in a column's section."""
    script = f"""(() => {{
        const section = [...document.querySelectorAll('.ge-section')].find(s => s.querySelector('h5').innerText == '{section}');
        return [...section.querySelector('table').tBodies[0].rows[0].cells].map(cell => cell.innerText.trim());
    }})()"""
    found: list[str] = chromium.evaluate(script)
    return found


def statistics(text: str) -> dict[str, int]:
    """The page's statistics, such as `Evaluated Expectations 6`."""
    return {name: int(number) for name, number in re.findall(r"(Evaluated|\w*uccessful) Expectations\s+(\d+)\b", text)}


@pytest.mark.slow
@needs_browser
def test_the_pages_match_the_results_table_in_a_browser_without_a_network(seen: Seen, chromium: browser.Browser, tmp_path: Path) -> None:
    table, found, rows = seen
    by_type = {row["expectation"]: row for row in rows}
    passed = [row for row in rows if row["success"]]
    assert (len(rows), len(passed)) == (6, 3), rows

    chromium.open(pages_folder(table.places) / "index.html")
    (run,) = chromium.evaluate("[...document.querySelector('table').tBodies[0].rows].map(row => row.innerText)")
    assert "✘ failed" in run and rows[0]["run_id"] in run and f"version {found.scope.version}" in run

    chromium.evaluate("document.querySelector('tbody a').click()")
    chromium.wait_loaded()
    assert found.page is not None
    assert chromium.evaluate("location.href") == found.page.as_uri()
    text = chromium.text()
    assert statistics(text) == {"Evaluated": 6, "Successful": len(passed), "Unsuccessful": 6 - len(passed)}
    assert "first validation run" in text and table.places.target in text and found.engine in text

    status = by_type[STATUS["type"]]
    verdict, described, observed, severity, samples = cells(chromium, "status")
    assert (verdict, severity) == ("✘ failed", "critical")
    assert f"{status['unexpected_count']} unexpected values found" in described
    assert f"{status['unexpected_percent']:.2f}% of {status['element_count']} total rows" in described
    assert observed == f"≈{status['unexpected_percent']:.3f}% unexpected"
    assert [{"id": line.removeprefix("id ")} for line in samples.split("\n")] == json.loads(status["samples"])
    assert all(value in described for value in json.loads(status["unexpected_values"])), "values are shown as text"

    assert cells(chromium, "amount")[0] == "✘ failed"
    assert cells(chromium, "amount")[3:] == ["warning", "id worse"]
    assert cells(chromium, "id")[0] == "✔ passed"
    assert cells(chromium, "Table-Level Expectations")[2] == json.loads(by_type[COUNT["type"]]["observed"]).__str__()
    verdict, described, *_ = cells(chromium, "name")
    assert verdict == "⚠ not evaluated" and "raised an exception" in described

    # The page has a layout, so the style sheet was loaded.
    assert chromium.evaluate("getComputedStyle(document.querySelector('.page')).display") in ("flex", "block")
    assert chromium.evaluate("document.querySelector('.bar').getBoundingClientRect().width") > 20
    assert chromium.evaluate("getComputedStyle(document.querySelector('i.text-danger')).color") == "rgb(192, 32, 44)"
    chromium.screenshot(tmp_path / "page.png")

    chromium.evaluate("document.querySelector('#failed-only').click()")
    assert "values must be unique" not in chromium.text("main") and "bad" in chromium.text("main")

    chromium.evaluate("document.querySelector('.alert a').click()")
    chromium.wait_loaded()
    assert "values must be unique" in chromium.text("main"), "the link leads to the page of the suite"
    assert chromium.asked == [], "a page requested something from the network"
    assert chromium.problems == []
    assert chromium.evaluate("document.title") != "taken over"


@pytest.mark.slow
def test_an_expectation_that_could_not_be_evaluated_is_on_the_page_too(seen: Seen) -> None:
    _, found, rows = seen
    broken = next(row for row in rows if row["column"] == "name")
    assert CAUSES[found.engine] in broken["exception"] and not broken["success"], "the cause is shown, not a Py4J call"
    assert found.page is not None and broken["page"] == str(found.page)
    assert "raised an exception" in found.page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_results_are_kept_if_gx_cannot_render_their_page(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = desk(COLUMNS)
    table.batch(order("a", status="lost"))
    monkeypatch.setitem(pages.TABLE, "class_name", "PageView")  # a class that renders no table
    found = check(lambda: table.session, suite_of(table, [STATUS]), table.places)
    assert found.page is None
    (row,) = table.session.read.format("delta").load(table.places.quality).collect()
    assert (row["success"], row["page"]) == (False, None)
    print_checked(found)
    assert "page: none: Great Expectations could not render it" in capsys.readouterr().out
    (pages_folder(table.places) / "results" / "mine.json").write_text("{}")  # a file that GX mistakes for one of its own
    found = check(lambda: table.session, suite_of(table, [STATUS]), table.places, everything=True)
    assert (found.page, table.session.read.format("delta").load(table.places.quality).count()) == (None, 2)
    assert found.page_note is not None and found.page_note.startswith("none: Great Expectations could not render it")


@pytest.mark.slow
def test_pages_of_a_remote_lake_are_reported_as_stored_on_this_machine_only(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = desk(COLUMNS)
    table.batch(order("a", status="paid"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "is_local", lambda location: False)  # so Spark checks
    monkeypatch.setattr("ingest.runtime.places.is_local", lambda location: False)
    found = check(lambda: table.session, suite_of(table, [STATUS]), table.places)
    assert found.page is not None and found.page.is_relative_to(tmp_path / "data_docs" / "t" / "events")
    print_checked(found)
    assert "(on this machine's disk, since the lake is elsewhere: it is lost with the machine;" in capsys.readouterr().out
    # If the working folder is not writable, the results are stored anyway.
    shutil.rmtree(tmp_path / "data_docs")
    (tmp_path / "data_docs").write_text("a file")
    found = check(lambda: table.session, suite_of(table, [STATUS]), table.places, everything=True)
    assert (found.page, table.session.read.format("delta").load(table.places.quality).count()) == (None, 2)
    print_checked(found)
    assert f"page: none: {tmp_path}/data_docs/t/events cannot be written (Not a directory)" in capsys.readouterr().out
