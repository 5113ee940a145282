"""`ingest report` and `ingest ui` as processes, and their page in a real browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.delta.delta_sql import At, DataFusion
from ingest.runtime.places import pages_folder
from tests.integration import browser
from tests.unit.observe.report.report_lake import ReportLake
from tests.unit.observe.report.test_html_page import SCRIPT

pytestmark = pytest.mark.integration

COMMAND = browser.find()
needs_browser = pytest.mark.skipif(COMMAND is None, reason=f"no browser: none of {', '.join(browser.NAMES)} is installed")
CONTRACT = """\
pipeline: shop
table: orders
source: {topic: orders, format: json}
columns: [{name: id, type: BIGINT, nullable: false}]
event_id: [id]
"""
WITHIN_S = 120
# The size of a page that is wider than its window, and of all elements that have no scroll box of their own.
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ReportLake:
    """A project folder with a small lake: two epochs, hostile bytes in the quarantine, a validation run with a page."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "tables").mkdir()
    (folder / "tables" / "orders.yml").write_text(CONTRACT)
    made = ReportLake(folder)
    made.batch_at(0, 0, 1000, range(980), duplicates=10, gap=10)
    made.value, made.reason, made.detail = SCRIPT, "malformed_json", SCRIPT.decode()
    made.batch_at(10, 1000, 1010, range(1000, 1008), [1008, 1009])
    made.start()
    made.batch_at(60, 1010, 1020, range(1010, 1020))
    index = pages_folder(made.places) / "index.html"
    index.parent.mkdir(parents=True)
    index.write_text("<!doctype html><title>Data Docs</title><h1>Data Docs</h1>")
    made.quality("run", 0, None, "critical")
    proofs = Path(made.places.lake) / "proofs/shop/orders"  # the page shows its long path
    proofs.mkdir(parents=True)
    (proofs / "000001.json").write_text('{"made_at": "2026-03-01T12:00:00Z", "ok": true}')
    made.keep()
    return made


def words(lake: ReportLake, verb: str, *more: str) -> list[str]:
    places = ["--lake", lake.places.lake, "--checkpoints", lake.places.checkpoints, "--project", str(Path(lake.places.lake).parent)]
    return [sys.executable, "-m", "ingest", verb, *places, "--bootstrap-servers", "127.0.0.1:1", *more]


def ran(lake: ReportLake, verb: str, *more: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(lake, verb, *more), check=False, capture_output=True, text=True, timeout=WITHIN_S, cwd=cwd)


@pytest.fixture(scope="module")
def file(lake: ReportLake) -> Path:
    """The page that `ingest report` writes."""
    file = Path(lake.places.lake).parent / "pages" / "report.html"
    ended = ran(lake, "report", "--out", str(file))
    assert ended.returncode == 0, ended.stderr
    return file


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    assert COMMAND is not None
    with browser.Browser(COMMAND) as running:
        yield running


def figure(chromium: browser.Browser, name: str) -> str:
    return chromium.text(f'[data-figure="{name}"]')


@needs_browser
def test_the_page_shows_the_values_of_status_and_ledger(lake: ReportLake, file: Path, chromium: browser.Browser) -> None:
    (status,) = json.loads(ran(lake, "status", "--json").stdout)["tables"]
    columns = {"read": "records_read", "inserted": "target_rows", "quarantined": "quarantine_rows", "duplicate": "present + duplicate"}
    sums = ", ".join(f"sum({column}) AS {name}" for name, column in columns.items())
    (ledger,) = DataFusion().ask(f"SELECT {sums} FROM {{ledger}} WHERE why = 'batch'", ledger=At(lake.places.ledger))
    chromium.open(file)
    assert {name: figure(chromium, name) for name in ledger} == {name: f"{value:,}" for name, value in ledger.items()}
    assert figure(chromium, "last_batch") == status["last_batch"] and figure(chromium, "lag") == "unknown" and status["lag"] is None
    text = chromium.text("main")
    assert f"A start will {status['next']}." in text and f"version {status['target_version']}" in text
    assert f"in the ledger {status['ledger_batch']}" in text and status["refusal"]["code"] in text
    assert status["last_commit"][:19].replace("T", " ") in text
    assert figure(chromium, "rows") == "998"


@needs_browser
def test_the_page_runs_nothing_and_asks_nobody(file: Path, chromium: browser.Browser) -> None:
    chromium.asked.clear()
    chromium.open(file)
    assert chromium.evaluate("document.querySelectorAll('script, img, iframe').length") == 0
    chromium.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert "<script>document.title" in chromium.text("main"), "the hostile bytes are text"
    assert chromium.evaluate("document.title") == "Oncelake: 1 table"
    assert (chromium.asked, chromium.problems) == ([], [])


@needs_browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_a_desk_in_both_schemes(file: Path, chromium: browser.Browser, width: int, scheme: str) -> None:
    chromium.emulate(width=width, scheme=scheme)
    chromium.open(file)
    chromium.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert chromium.evaluate(WIDER) <= 0, "no horizontal scrolling"
    assert chromium.evaluate("innerWidth") == width
    assert chromium.evaluate(CONTRAST) == []
    back = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) > 600) == (scheme == "light"), back


# Text whose contrast with the nearest background is below 4.5 (WCAG 2 AA), and lines or bars of charts below 3.
CONTRAST = """(() => {
  const parts = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => { const [r, g, b] = parts(color).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((m, n) => n - m); return (x + .05) / (y + .05); };
  const back = node => { for (; node; node = node.parentElement) { const c = getComputedStyle(node).backgroundColor;
    if (parts(c)[3] !== 0) return c; } return 'rgb(255, 255, 255)'; };
  const bad = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some(each => each.nodeType == 3 && each.data.trim());
    const style = getComputedStyle(node);
    const svg = node.namespaceURI.endsWith('svg');
    if (own && !['title', 'desc'].includes(node.tagName)) {
      const color = svg ? style.fill : style.color;
      if (ratio(color, back(node.closest('svg') || node)) < 4.5) bad.push(node.tagName + ' ' + node.textContent.slice(0, 30));
    }
    if (svg && node.closest('.mark-rect, .mark-line')) for (const color of [style.fill, style.stroke])
      if (color != 'none' && parts(color)[3] !== 0 && ratio(color, back(node.closest('figure'))) < 3) bad.push('chart ' + color);
  }
  return [...new Set(bad)];
})()"""


@needs_browser
def test_the_keyboard_reaches_everything_in_the_order_of_the_page(file: Path, chromium: browser.Browser) -> None:
    chromium.emulate()
    chromium.open(file)
    chromium.press("Tab")
    assert chromium.evaluate("document.activeElement.className") == "skip"
    assert chromium.evaluate("document.activeElement.getBoundingClientRect().left") >= 0, "the skip link is visible while it has the focus"
    wanted = chromium.evaluate("document.querySelectorAll('main a, main summary, main .wide:not(details:not([open]) *)').length")
    reached: list[Any] = []
    for _ in range(wanted):
        chromium.press("Tab")
        reached.append(
            chromium.evaluate(
                "(() => { const e = document.activeElement; return [e.getBoundingClientRect().top + scrollY, "
                "getComputedStyle(e).outlineStyle, e.tagName]; })()"
            )
        )
    assert all(style == "solid" for _, style, _ in reached), "the focus is visible"
    names = [name for _, _, name in reached]
    assert names[0] == "DIV" and names[1] == "A" and names.count("SUMMARY") == 6, names
    rows = [top for top, _, name in reached if name != "SUMMARY"]  # charts are beside each other
    assert rows == sorted(rows)
    chromium.evaluate("document.querySelector('summary').focus()")
    chromium.press("Enter")
    assert chromium.evaluate("document.querySelector('details').open")


def test_json_prints_the_summary_and_writes_no_file(lake: ReportLake, tmp_path: Path) -> None:
    ended = ran(lake, "report", "--json", cwd=tmp_path)
    document = json.loads(ended.stdout)
    assert (document["schema"], document["ok"], document["error"]) == ("oncelake/report/1", True, None)
    (table,) = document["tables"]
    assert table["figures"]["total"]["inserted"] == 998 and table["quarantine"][0]["open"] == 2
    assert list(tmp_path.iterdir()) == []


def test_the_docs_link_of_a_file_is_relative(file: Path) -> None:
    assert 'href="../lake/docs/shop/orders/index.html"' in file.read_text()


@pytest.mark.parametrize("verb", ["report", "ui"])
def test_a_remote_lake_is_refused(lake: ReportLake, verb: str, tmp_path: Path) -> None:
    ended = ran(lake, verb, "--lake", "s3a://bucket/lake", cwd=tmp_path)
    assert ended.returncode == 2 and "STATUS_REMOTE" in ended.stderr and list(tmp_path.iterdir()) == []


@pytest.fixture
def served(lake: ReportLake) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`ingest ui` on a free port, and the address that it prints."""
    process = subprocess.Popen(words(lake, "ui", "--port", "0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found is not None, line
        yield process, found.group()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_server_stops_cleanly_and_wrote_nothing(
    lake: ReportLake, served: tuple[subprocess.Popen[str], str], number: int, code: int
) -> None:
    process, url = served
    before = {path: os.stat(path).st_mtime_ns for path in Path(lake.places.lake).rglob("*")}
    with urllib.request.urlopen(f"{url}summary.json", timeout=WITHIN_S) as answer:
        assert json.loads(answer.read())["tables"][0]["table"] == "shop.orders"
    process.send_signal(number)
    assert process.wait(WITHIN_S) == code
    assert process.stderr is not None and process.stderr.read() == ""
    assert {path: os.stat(path).st_mtime_ns for path in Path(lake.places.lake).rglob("*")} == before


@needs_browser
def test_the_live_page_refreshes_itself_and_leads_to_the_data_docs(
    served: tuple[subprocess.Popen[str], str], lake: ReportLake, chromium: browser.Browser
) -> None:
    _, url = served
    chromium.problems.clear()
    chromium.open(url)
    assert figure(chromium, "inserted") == "998"
    chromium.evaluate("document.querySelector('[data-figure=inserted]').textContent = 'old'; document.querySelector('details').open = true")
    chromium.evaluate("document.querySelector('summary').focus()")
    assert chromium.evaluate("refresh().then(() => 1)", wait=True) == 1
    assert figure(chromium, "inserted") == "998"
    assert chromium.evaluate("document.querySelector('details').open && document.activeElement.tagName") == "SUMMARY"
    chromium.evaluate("document.querySelector('#live').click(); document.querySelector('[data-figure=inserted]').textContent = 'old'")
    chromium.evaluate("refresh().then(() => 1)", wait=True)
    assert figure(chromium, "inserted") == "old", "the box stops the refresh"
    assert chromium.evaluate("getComputedStyle(document.querySelector('.figures')).display") == "grid"
    assert chromium.problems == []
    chromium.evaluate("[...document.querySelectorAll('a')].find(each => each.innerText.startsWith('Data Docs')).click()")
    chromium.wait_loaded()
    assert chromium.evaluate("location.pathname") == "/docs/shop/orders/index.html" and chromium.text("h1") == "Data Docs"
    assert chromium.problems == [] and all(address.startswith(url) for address in chromium.asked)
