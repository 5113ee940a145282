"""`ingest semantics` without a broker: the judge, the promises, the tables, the page and the picture."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.lab.delivery_modes import comparison
from ingest.lab.delivery_modes.candidate import NAMES
from ingest.lab.delivery_modes.chart import charts, picture, svg
from ingest.lab.delivery_modes.mode_page import page
from ingest.lab.delivery_modes.mode_result import Latency, ModeResult, Speed, Trial
from ingest.lab.delivery_modes.mode_table import tables
from ingest.lab.delivery_modes.mode_verdict import ModeVerdict, judge
from ingest.lab.delivery_modes.reader import summary
from ingest.lab.delivery_modes.reported import Entry, Reported
from ingest.runtime.errors import InvalidInput

pytestmark = pytest.mark.unit

CLEAN = ModeVerdict(lost=0, doubled=0, reordered=0, lost_though_reported=0, hidden=0)


def trial(mode: str, **harm: int) -> Trial:
    return Trial(mode, "reply_lost", 100, 1, 0, 1.0, ModeVerdict(**{**vars(CLEAN), **harm}))


def speed(mode: str, group: int | None, of_forget: float) -> Speed:
    return Speed(mode, group, 20_000 * of_forget, 1.0, of_forget, Latency(1_000.0, 2_000, 3.0, 9.0, 20.0, 40.0))


@pytest.fixture
def result() -> ModeResult:
    modes = {"at_most_once": 1.0, "at_least_once": 0.85, "idempotent": 0.95, "exactly_once": 0.4}
    speeds = [speed(mode, group, part) for group in (None, 1, 100) for mode, part in modes.items()]
    trials = (trial("at_most_once", lost=7), trial("at_least_once", doubled=5), trial("idempotent"), trial("exactly_once", hidden=30))
    return ModeResult(1, 100, 10, 1.5, 3, {"cores": 2, "python": "<3>"}, trials, tuple(speeds))


class TestJudge:
    def test_records_that_arrive_once_and_in_order_are_clean(self) -> None:
        assert judge(6, [[0, 2, 4], [1, 3, 5]], [[0, 2, 4], [1, 3, 5]]) == CLEAN

    def test_a_missing_record_is_lost_and_counted_extra_if_it_was_reported_as_delivered(self) -> None:
        reported = [Entry("begun", 0, 6), Entry("delivered", 0, 4), Entry("unknown", 4, 6)]
        assert judge(6, [[0, 2], [1]], [[0, 2], [1]], reported) == ModeVerdict(3, 0, 0, 1, 0)

    def test_copies_count_as_doubled_and_not_as_reordered(self) -> None:
        assert judge(4, [[0, 2, 0, 2, 2], [1, 3, 1]], [[0, 2, 0, 2, 2], [1, 3, 1]]) == ModeVerdict(0, 4, 0, 0, 0)

    def test_a_first_copy_after_a_later_record_is_reordered(self) -> None:
        assert judge(6, [[0, 4, 2], [3, 1, 5]], [[0, 4, 2], [3, 1, 5]]) == ModeVerdict(0, 0, 2, 0, 0)

    def test_aborted_records_are_hidden(self) -> None:
        assert judge(2, [[0], [1]], [[0, 0, 0], [1]]) == ModeVerdict(0, 0, 0, 0, 2)

    def test_a_record_that_was_never_sent_is_a_bug(self) -> None:
        with pytest.raises(ValueError, match=r"\[9\], expected 0 to 3"):
            judge(4, [[0, 9]], [[0, 9]])


def test_a_sender_continues_where_its_log_ends(tmp_path: Path) -> None:
    reported = Reported(tmp_path / "reported")
    assert (reported.entries(), reported.after("delivered")) == ([], 0)
    for word, first, end in (("begun", 0, 10), ("delivered", 0, 10), ("begun", 10, 20), ("failed", 10, 20)):
        reported.write(word, first, end)  # type: ignore[arg-type]
    assert (Reported(tmp_path / "reported").after("delivered"), reported.after("begun")) == (10, 20)
    with pytest.raises(ValueError, match="expected one of"):
        reported.write("sent", 0, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="first <= end"):
        reported.write("begun", 2, 1)


@pytest.mark.parametrize(
    ("mode", "harm", "broken"),
    [
        ("at_most_once", {"lost": 3, "reordered": 1}, ()),
        ("at_most_once", {"doubled": 1}, ("1 doubled",)),
        ("at_least_once", {"doubled": 9}, ()),
        ("at_least_once", {"lost": 2, "lost_though_reported": 1}, ("2 lost", "1 lost that were reported as delivered")),
        ("idempotent", {"doubled": 9, "hidden": 1}, ()),
        ("exactly_once", {"hidden": 50}, ()),
        ("exactly_once", {"lost": 1, "doubled": 2, "reordered": 3}, ("1 lost", "2 doubled", "3 reordered")),
    ],
)
def test_each_mode_is_judged_by_its_own_promise(mode: str, harm: dict[str, int], broken: tuple[str, ...]) -> None:
    assert trial(mode, **harm).broken == broken


def test_a_claim_is_compared_with_the_measurement(result: ModeResult) -> None:
    assert [(claim.mode, claim.says) for claim in result.claims] == [
        ("at_least_once", "as claimed"),
        ("idempotent", "more"),
        ("exactly_once", "less"),
    ]


def test_the_json_of_a_run_contains_all_results(result: ModeResult) -> None:
    document = json.loads(json.dumps(result.as_dict()))
    assert [each["lost"] for each in document["trials"]] == [7, 0, 0, 0] and document["trials"][0]["broken"] == []
    assert len(document["speeds"]) == 12 and document["speeds"][0]["latency"]["p99_ms"] == 20.0
    assert (document["seed"], document["machine"]["cores"], document["claims"][2]["says"]) == (1, 2, "less")


def test_the_throughput_is_also_drawn_as_a_share_of_at_most_once(result: ModeResult) -> None:
    """A share compares modes with the same groups, so at_most_once is always 1."""
    twice = tuple(replace(each, of_same=2.0) if each.mode == "exactly_once" else each for each in result.speeds)
    (chart,) = (each for each in charts(replace(result, speeds=twice)) if "share of at most once" in str(each.to_dict()))
    dots = set(re.findall(r'value: ([\d.]+); mode: ([\w ]+)" role="graphics-symbol"', svg(chart)))
    assert dots == {("1", "at most once"), ("1", "at least once"), ("1", "idempotent"), ("2", "exactly once")}, "independent of records/s"


@pytest.mark.parametrize("quick", [False, True])
def test_a_quick_run_says_everywhere_that_its_ratios_are_no_measurements(result: ModeResult, quick: bool) -> None:
    found = replace(result, quick=quick)
    harm, cost, claims = tables(found)
    note = "throughput, latency and their ratios are no measurements"
    assert (note in cost.text(), note in claims.text(), note in harm.text()) == (quick, quick, False)
    assert (note in page(found).split("<svg")[0]) is quick, "before the first chart"
    document = json.loads(json.dumps(found.as_dict()))
    assert document["quick"] is quick and (note in (document["caveat"] or "")) is quick
    assert {each["says"] == "not measured" for each in document["claims"]} == {quick}
    titles = re.findall(r">((?:Throughput|Latency), [^<]+)</text>", "".join(map(svg, charts(found))))
    assert len(titles) == 4 and {"quick run, no measurement" in title for title in titles} == {quick}


def test_a_full_run_measures_transactions_of_1_to_10000_records_and_injects_every_fault() -> None:
    assert comparison.FULL.sizes == (1, 10, 100, 1_000, 10_000)
    assert [fault.name for fault in comparison.chosen([])] == [
        "reply_lost",
        "producer_killed",
        "consumer_killed",
        "rebalance",
        "broker_bounced",
    ]
    assert NAMES == ("at_most_once", "at_least_once", "idempotent", "exactly_once")


def test_a_quick_run_is_marked_as_such() -> None:
    assert comparison.QUICK.quick and comparison.QUICK.of(500, None).quick and not comparison.FULL.quick


def test_the_tables_show_broken_promises(result: ModeResult) -> None:
    text = "\n".join(table.text() for table in tables(result))
    assert "BROKEN" not in text and re.search(r"reply lost +at most once +7 +0", text)
    worse = ModeResult(**{**vars(result), "trials": (trial("exactly_once", lost=4),)})
    assert "BROKEN: 4 lost" in tables(worse)[0].text() and worse.broken == worse.trials
    assert '<td class="broken">BROKEN: 4 lost</td>' in page(worse)


def test_the_page_loads_nothing_from_the_network_and_escapes_its_values(result: ModeResult) -> None:
    text = page(result)
    assert "python &lt;3&gt;" in text and "<3>" not in text
    assert not re.search(r"(src|href)=|<script|<link|<img|@import|url\((?!#)", text)
    assert text.count("<svg ") == len(charts(result)) == 5 and text.count("<table>") == 3
    assert text.count("<td>") + text.count('<td class="broken">') == sum(len(table.rows) * len(table.heads) for table in tables(result))


@pytest.mark.parametrize("quick", [False, True])
def test_the_picture_of_a_run_has_every_chart(result: ModeResult, quick: bool, tmp_path: Path) -> None:
    picture(replace(result, quick=quick)).save(tmp_path / "charts.svg")
    texts = set(re.findall(r">([^<>]+)</text>", (tmp_path / "charts.svg").read_text(encoding="utf-8")))
    throughput = f"Throughput, records per second{' (quick run, no measurement)' * quick}"
    assert {"Harm by fault, records", throughput, "exactly once", "no groups", "7 lost"} <= texts


def test_a_picture_is_refused_before_the_run_if_the_drawing_library_is_missing(tmp_path: Path) -> None:
    code = "import sys; sys.modules['vl_convert'] = None; from ingest.cli.app import main; main()"
    words = [sys.executable, "-c", code, "semantics", "--png", str(tmp_path / "charts.png")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 4 and "EXTRA_MISSING" in ended.stderr and "extra `lab`" in ended.stderr


def test_percentiles_are_values_that_were_measured() -> None:
    found = summary([float(number) for number in range(1, 101)])
    assert found == {"records": 100, "p50_ms": 50.0, "p95_ms": 95.0, "p99_ms": 99.0, "max_ms": 100.0}
    assert summary([7.0]) == {"records": 1, "p50_ms": 7.0, "p95_ms": 7.0, "p99_ms": 7.0, "max_ms": 7.0}


def test_an_unknown_fault_and_too_few_records_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"FAULT_UNKNOWN.*rebalance"):
        comparison.chosen(["flood"])
    assert [fault.name for fault in comparison.chosen(["rebalance", "reply_lost"])] == ["reply_lost", "rebalance"]
    with pytest.raises(InvalidInput, match=r"SEMANTICS_SIZE.*at least 100"):
        comparison.FULL.of(99, None)
    with pytest.raises(InvalidInput, match=r"2000 records in groups of 500"):
        comparison.FULL.of(None, 500)
    assert [comparison.FULL.of(*each).group for each in ((None, None), (500, None), (5_000, None), (5_000, 500))] == [100, 50, 100, 500]
