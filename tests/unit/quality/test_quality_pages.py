"""Pages of validation runs: links resolve, data is shown as text, and nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ingest.quality import pages
from ingest.quality.validation_result import scrubbed

pytestmark = pytest.mark.unit

RUN_AT = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
MARKUP = "<script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>"
META = {"batch_spec": {"table": "/lake/t/events/target", "data_asset_name": "version 3", "version": 3, "rows": "all (asked for)"}}


def result(kind: str, success: bool, found: Mapping[str, Any], exception: str | None = None, **kwargs: Any) -> dict[str, Any]:
    """A GX result, scrubbed as `ingest check` does."""
    raw = {
        "success": success,
        "expectation_config": {"type": kind, "kwargs": kwargs, "meta": {}, "severity": "warning"},
        "result": found,
        "exception_info": {"raised_exception": exception is not None, "exception_message": exception, "exception_traceback": "Traceback"},
    }
    return scrubbed(raw, ["id"], sensitive=False)


SET = result(
    "expect_column_values_to_be_in_set",
    False,
    {
        "element_count": 11,
        "unexpected_count": 2,
        "unexpected_percent": 18.18,
        "partial_unexpected_list": ["lost", MARKUP],
        "partial_unexpected_counts": [{"value": "lost", "count": 1}, {"value": MARKUP, "count": 1}],
        "partial_unexpected_index_list": [{"id": "bad"}, {"id": MARKUP}],
        "unexpected_index_column_names": ["id"],
    },
    column="status",
    value_set=["placed"],
)
GREATEST = result("expect_column_max_to_be_between", False, {"observed_value": MARKUP}, column="status", max_value=5)
SHARES = {"values": ["web", MARKUP], "weights": [0.6, 0.4]}
MIX = result(
    "expect_column_kl_divergence_to_be_less_than",
    True,
    {"observed_value": 0.01, "details": {"observed_partition": SHARES, "expected_partition": SHARES}},
    column="channel",
    partition_object=SHARES,
    threshold=0.1,
)
BROKEN = result("expect_column_max_to_be_between", False, {}, f"no such thing: {MARKUP}", column="amount", min_value=0)


def write(folder: Path, *results: Mapping[str, Any], name: str = "t.events", hours: int = 0) -> Path | None:
    configs = [each["expectation_config"] for each in results]
    return pages.write_pages(folder, name, configs, results, f"run{hours}", RUN_AT + timedelta(hours=hours), META)


class Page(HTMLParser):
    """The tags, link targets, event handlers and text of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.html = file.read_text(encoding="utf-8")
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.text += " "
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        self.scripts += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


def test_pages_load_nothing_run_no_script_and_show_markup_in_the_data_as_text(tmp_path: Path) -> None:
    assert write(tmp_path, SET, GREATEST, MIX, BROKEN) is not None
    found = [Page(file) for file in files(tmp_path)]
    assert len(found) == 3
    for page in found:
        assert not page.tags & {"script", "img", "iframe", "object", "embed"}
        assert not page.scripts
        assert all(re.fullmatch(r"#[\w-]+|data:,|[\w./%-]+", address) for address in page.addresses), page.addresses
        assert "url(" not in page.html and "@import" not in page.html
        assert "Content-Security-Policy\" content=\"default-src 'none';" in page.html
    (run,) = (page for page in found if "Evaluated" in page.text)
    assert run.text.count(MARKUP) == 6, "as a value, an id, an observed value, twice in a distribution and in an exception"
    assert {file.relative_to(tmp_path).parts[0] for file in tmp_path.rglob("*") if file.is_file()} == {
        "expectations",
        "index.html",
        "results",
        "validations",
    }


def described(each: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A result of an expectation that says more about itself."""
    return {**each, "expectation_config": {**each["expectation_config"], **more}}


def test_what_a_suite_says_about_itself_is_shown_as_text(tmp_path: Path) -> None:
    """A suite comes from a repository, but its words, and the names in it, can come from anybody."""
    notes = {"format": "markdown", "content": [MARKUP, "[x](javascript:alert(1))"]}
    ids = {"element_count": 1, "unexpected_count": 1, "partial_unexpected_list": [{MARKUP: MARKUP}]}
    results = [
        described(SET, description=f"$column {MARKUP}", notes=MARKUP, meta={"notes": MARKUP, MARKUP: MARKUP}),
        described(MIX, notes=[MARKUP], meta={"notes": notes}),
        result("expect_column_values_to_be_between", True, {"element_count": 1}, column=MARKUP, min_value={"$PARAMETER": MARKUP}),
        described(result("expect_column_to_exist", True, {}, column="c"), description=f"[x](javascript:alert(1)) {MARKUP}"),
        result("expect_compound_columns_to_be_unique", False, ids, column_list=[MARKUP, "id"]),
    ]
    configs = [each["expectation_config"] for each in results]
    meta = {"batch_spec": {"table": MARKUP, "data_asset_name": MARKUP, MARKUP: MARKUP}}
    assert pages.write_pages(tmp_path, "t.events", configs, results, "run", RUN_AT, meta) is not None
    found = [Page(file) for file in files(tmp_path)]
    assert len(found) == 3
    for page in found:
        assert not page.tags & {"script", "img"} and not page.scripts and MARKUP in page.text
        assert not [address for address in page.addresses if not re.fullmatch(r"#[\w-]+|data:,|[\w./%-]+", address)]


def test_the_pages_are_not_for_others(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        write(tmp_path / "docs/t/events", SET)
    finally:
        os.umask(former)
    assert stat.S_IMODE((tmp_path / "docs/t/events").stat().st_mode) == 0o770


def test_a_page_shows_verdicts_severities_and_ids(tmp_path: Path) -> None:
    page = write(tmp_path, SET, MIX, BROKEN)
    assert page is not None
    text = " ".join(Page(page).text.split())
    assert "✘ failed values must belong to this set: placed. 2 unexpected values found. 18.18% of 11 total rows." in text
    assert "18.18% unexpected warning id bad" in text
    assert "✔ passed Kullback-Leibler" in text
    assert "⚠ not evaluated" in text and "raised an exception: no such thing" in text


def test_every_link_on_a_page_resolves(tmp_path: Path) -> None:
    for hours in range(3):
        assert write(tmp_path, MIX, hours=hours) is not None
    for file in files(tmp_path):
        for address in Page(file).addresses:
            assert address.startswith(("#", "data:")) or (file.parent / address).is_file(), f"{file} links to {address}"
    runs = re.findall(r">(run\d)<", (tmp_path / "index.html").read_text(encoding="utf-8"))
    assert runs == ["run2", "run1", "run0"], "the newest run comes first"


def test_the_oldest_runs_are_removed_from_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGES_KEPT", 2)
    for hours in range(3):
        write(tmp_path, MIX, hours=hours)
    assert len(list((tmp_path / "results").rglob("*.json"))) == 2
    kept = [file for file in files(tmp_path) if "validations" in file.parts]
    assert [file.relative_to(tmp_path).parts[3] for file in kept] == ["run1", "run2"]


def test_a_page_that_gx_cannot_render_has_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pages.TABLE, "class_name", "PageView")  # not a table class
    assert write(tmp_path, MIX) is None
