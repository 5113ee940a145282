"""The page of a small lake: it loads nothing, escapes everything, and shows each figure with the words that explain it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ingest.observe.report.evidence import LastProof
from ingest.observe.report.html_page import page
from ingest.observe.report.summary import Summaries, Summary
from ingest.quality.audited_version import AuditState
from ingest.runtime.errors import InvalidInput
from tests.unit.observe.report.report_lake import ReportLake
from tests.unit.verify.proof_lake import CONTRACT

pytestmark = pytest.mark.unit

SCRIPT = b'"><script>document.title="taken over"</script><img src=x onerror=alert(1)>{{ 7 * 7 }}'


class Tags(HTMLParser):
    """All tags of a document with their attributes, and the text of the elements with `data-figure`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.figures: dict[str, str] = {}
        self._figure: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._figure = dict(attrs).get("data-figure")

    def handle_data(self, data: str) -> None:
        if self._figure is not None:
            self.figures[self._figure], self._figure = data, None

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    lake = ReportLake(tmp_path_factory.mktemp("page"))
    lake.batch_at(0, 0, 1000, range(990), gap=10)
    lake.value, lake.reason, lake.detail = SCRIPT, "malformed_json", SCRIPT.decode()
    lake.batch_at(10, 1000, 1010, range(1000, 1008), [1009], gap=1)
    lake.start()
    lake.batch_at(60, 1010, 1020, range(1010, 1020))
    lake.quality("<b>run</b>", 0, None, "critical")
    lake.quality("two", 5, None, None)
    lake.held()
    return lake.summary()


@pytest.fixture(scope="module")
def text(found: Summary) -> str:
    """The page as a file, without Data Docs."""
    return shown(found)


def shown(found: Summary, docs: str | None = None, nonce: str = "") -> str:
    return page(Summaries("2026-03-01T12:00:00.000Z", (found,), {}), "<lake>", 24, lambda _: docs, nonce, 10)


def test_the_figures_are_those_of_the_summary(found: Summary, text: str) -> None:
    figures = Tags(text).figures
    assert figures["rows"] == "1,008" == f"{found.rows:,}"
    assert (figures["read"], figures["inserted"], figures["quarantined"], figures["duplicate"]) == ("1,009", "1,008", "1", "0")
    assert (figures["gap_other"], figures["gap_accepted"], figures["last_batch"], figures["lag"]) == ("11", "0", "2/2", "unknown")


def test_a_hold_is_a_badge_of_the_table_and_of_the_overview(found: Summary, text: str) -> None:
    assert found.audit.held is not None
    assert text.count(f">held since {found.audit.held.since[:10]}</span>") == 2
    assert "held since" not in shown(replace(found, audit=AuditState()))


def test_a_proof_is_said_to_be_chained_with_the_hash_to_keep_elsewhere(found: Summary) -> None:
    """It is not said to be proven: whoever can write the folder can write another chain."""
    hash = "5e1c" + "0" * 60
    last = LastProof(3, "2026-03-01T12:00:00Z", True, "/lake/000003.json", hash, True)
    text = shown(replace(found, proof=last))
    assert text.count('<span class="badge ok">chained 5e1c0000</span>') == 2 and f'"proof_sha256">{hash}<' in text
    assert "chained by hash, not signed" in text and "proven" not in text.lower()


@pytest.mark.parametrize(
    ("last", "badge"),
    [
        (None, ("plain", "no proof file")),
        (LastProof(3, "", None, "/lake/000003.json", "", False), ("warn", "proof not readable")),
        (LastProof(3, "", None, "/lake/000003.json", "5e1c", False), ("bad", "proof altered")),
        (LastProof(3, "2026-03-01T12:00:00Z", True, "/lake/000003.json", "5e1c", False), ("bad", "proof chain broken")),
        (LastProof(3, "2026-03-01T12:00:00Z", False, "/lake/000003.json", "5e1c", True), ("bad", "balance does not hold")),
    ],
)
def test_every_other_state_of_a_proof_has_a_badge_of_its_own(found: Summary, last: LastProof | None, badge: tuple[str, str]) -> None:
    text = shown(replace(found, proof=last))
    assert text.count(f'<span class="badge {badge[0]}">{badge[1]}</span>') == 2 and "proven" not in text.lower()


def test_hostile_bytes_and_names_become_text(text: str) -> None:
    tags = Tags(text)
    assert not tags.all("script") and not tags.all("img") and not tags.all("b")
    assert "&lt;script&gt;" in text and "{{ 7 * 7 }}" in text, "neither HTML nor a template"
    assert all(not name.startswith("on") for _, attributes in tags.tags for name in attributes)


def test_a_sample_names_its_topic_only_if_the_contract_names_several(found: Summary, text: str) -> None:
    (reason, *others), (sample, *_) = found.quarantine, found.quarantine[0].samples
    place = f"{sample.partition}:{sample.offset}"
    assert f"<td>{place}</td>" in text
    of_b = replace(reason, samples=(replace(sample, topic="b"),))
    assert f"<td>b/{place}</td>" in shown(replace(found, quarantine=(of_b, *others)))


def test_the_page_loads_nothing(text: str) -> None:
    tags = Tags(text)
    (policy,) = [each["content"] for each in tags.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and policy.startswith("default-src 'none'")
    assert [each["href"] for each in tags.all("link")] == ["data:,"]
    assert not [each for _, each in tags.tags if "src" in each or "xlink:href" in each]
    assert not re.search(r"url\((?!#)|@import", text)


def test_only_the_live_page_has_a_script_and_it_carries_the_nonce(found: Summary) -> None:
    (script,) = Tags(shown(found, nonce="n0nce")).all("script")
    assert script == {"nonce": "n0nce"}


def test_the_page_has_landmarks_one_heading_and_named_tables(text: str) -> None:
    tags = Tags(text)
    assert len(tags.all("h1")) == len(tags.all("main")) == len(tags.all("header")) == len(tags.all("footer")) == 1
    assert tags.all("html") == [{"lang": "en"}]
    assert len(tags.all("table")) == len(tags.all("caption")) > 5
    assert all(each.get("scope") in ("col", "row") for each in tags.all("th"))
    ids = [each["id"] for _, each in tags.tags if each.get("id")]
    assert len(ids) == len(set(ids)), "ids are unique, also those of the charts"
    named = {name for _, each in tags.tags for name in (each.get("aria-labelledby") or "").split()}
    assert named <= set(ids)
    assert tags.all("a")[0] == {"class": "skip", "href": "#main"}


def test_each_chart_has_a_name_a_description_and_its_figures_as_a_table(text: str) -> None:
    charts = Tags(text).all("svg")
    assert len(charts) == 5 and all(each["role"] == "img" for each in charts)
    for each in charts:
        title, description = (each["aria-labelledby"] or "").split()
        assert f'<title id="{title}">' in text and f'<desc id="{description}">' in text
    assert text.count(" as a table</summary>") == 5
    assert "#0101" not in text and "var(--chart-1)" in text, "the placeholders of the colours are gone"


def test_the_data_docs_are_linked(found: Summary, text: str) -> None:
    links = [each["href"] for each in Tags(shown(found, docs="lake/docs/shop/orders/index.html")).all("a")]
    assert "lake/docs/shop/orders/index.html" in links
    assert not any("docs" in (each["href"] or "") for each in Tags(text).all("a"))


def test_a_table_with_an_error_shows_it_beside_the_others(found: Summary) -> None:
    error = InvalidInput("TABLE_MISSING", "<i>gone</i>.", expected="a table.", remedy="run.")
    text = page(Summaries("2026-03-01T12:00:00.000Z", (found,), {"shop.gone": error}), "lake", 1, lambda _: None)
    assert "TABLE_MISSING" in text and "&lt;i&gt;gone" in text and "shop.orders" in text
    assert "the hour before" in text


def test_without_the_packages_that_draw_the_command_names_them_before_it_works(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/orders.yml").write_text(CONTRACT.to_json(), encoding="utf-8")
    code = "import sys; sys.modules['altair'] = None; from ingest.cli.app import main; main()"
    places = ["--project", str(tmp_path), "--lake", str(tmp_path / "lake"), "--checkpoints", str(tmp_path / "checkpoints")]
    call = [sys.executable, "-c", code, "report", "--out", str(tmp_path / "report.html"), *places]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4 and "EXTRA_MISSING" in done.stderr and "extra `local`" in done.stderr
    assert not (tmp_path / "report.html").exists()
