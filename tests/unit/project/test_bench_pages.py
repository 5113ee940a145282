"""The benchmark pages match their stored results, and `make bench` runs modules that exist."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import decoders, growth, latency, producer, quality, relay, rivals, scale, sink, start, throughput, verify
from bench.result import age

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]
FOLDER = PROJECT / "docs" / "benchmarks"
# More commits than this to the package, and a page has to say that its figures are older.
COMMITS_MAX = 60
# How the table on the page of costs names those that are set beside ours.
TITLES = {
    "| Oncelake, `conflicts: table`": "oncelake, conflicts: table",
    "| Delta's own streaming sink, which does not deduplicate": rivals.NATIVE,
    "| MERGE by hand, without quarantine, counts or ledger": rivals.MERGE,
    "| Oncelake with `--writer spark`": rivals.BY_SPARK,
}


def result_of(name: str) -> dict[str, Any]:
    """The stored result of a benchmark."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("throughput", throughput.page),
        ("throughput-orders", throughput.page),
        ("decoders", decoders.page),
        ("latency", latency.page),
        ("start", start.page),
        ("scale", scale.page),
        ("growth", growth.page),
        ("verify", verify.markdown),
        ("quality", quality.page),
        ("producer", producer.page),
        ("relay", relay.page),
        ("sink", sink.page),
    ],
)
def test_a_page_is_generated_from_its_result(name: str, page: Any) -> None:
    result = result_of(name)
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == page(result) + age(result)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_a_page_whose_figures_are_older_than_the_code_says_so(name: str) -> None:
    """Sixty commits to the package are about a session's work on it."""
    result = result_of(name)
    command = ["git", "rev-list", "--count", f"{result.get('commit')}..HEAD", "--", "ingest"]
    since = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if result.get("commit") and since.returncode != 0:
        pytest.skip("this copy of the repository has no history")
    assert result.get("older") or (result.get("commit") and int(since.stdout) <= COMMITS_MAX)
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8").endswith(age(result))


def test_throughput_was_measured_with_all_promised_rivals_and_records() -> None:
    result = result_of("throughput")
    rows = {each["rival"]: each for each in result["rivals"]}
    assert rows.keys() >= {rivals.READ, rivals.NATIVE, rivals.SAME_COLUMNS, rivals.MERGE, rivals.OURS, rivals.BY_SPARK}
    assert result["records"] >= 2_000_000 and result["rounds"] >= 3
    assert all(len(row["processor_s"]) == len(row["wall_s"]) == result["rounds"] - 1 for row in rows.values())
    # Delta's own sink stores retried records twice; a MERGE and our sink do not.
    assert rows[rivals.NATIVE]["rows"] == result["records"] > rows[rivals.OURS]["rows"] == rows[rivals.MERGE]["rows"]


def test_the_speeds_in_the_readme_and_on_the_page_of_costs_were_measured() -> None:
    result = result_of("throughput")
    rows = {each["rival"]: each for each in result["rivals"]}
    wall, own, python = (
        {name: f"{statistics.median(row[part]):.1f}" for name, row in rows.items()} for part in ("wall_s", "processor_s", "python_s")
    )
    speed = {name: "{:.2f}".format(row["speed_of"][rivals.NATIVE][0]) for name, row in rows.items()}
    span = "{:.2f} to {:.2f}".format(*rows[rivals.OURS]["speed_of"][rivals.NATIVE][1:])
    lines = [
        f"| Oncelake | {wall[rivals.OURS]} | {own[rivals.OURS]} ({python[rivals.OURS]} in Python) | {speed[rivals.OURS]} ({span}) |",
        *(f"{title} | {wall[name]} | {own[name]} | {speed[name]} |" for title, name in TITLES.items()),
        "A full warm batch takes {stage:.2f} s to read, decode and write files, {copies:.2f} s to find copies, and {target:.2f} s".format(
            **result["steps_s"]
        ),
    ]
    costs = (PROJECT / "docs" / "decisions" / "cost-of-a-batch.md").read_text(encoding="utf-8")
    assert [line for line in lines if line not in costs] == []
    claim = (
        f"{result['records'] / 1e6:.1f} million records in {wall[rivals.OURS]} s against {wall[rivals.NATIVE]} s, and in "
        f"{own[rivals.OURS]} CPU seconds against {own[rivals.NATIVE]},"
    )
    readme = " ".join((PROJECT / "README.md").read_text(encoding="utf-8").split())
    assert claim in readme and f"at {speed[rivals.BY_SPARK]} of the speed of Delta's own sink" in readme


def test_the_numbers_for_scale_and_growth_on_the_page_of_costs_were_measured() -> None:
    text = " ".join((PROJECT / "docs" / "decisions" / "cost-of-a-batch.md").read_text(encoding="utf-8").split())
    points = {(each["factor"], each["value"]): each for each in result_of("scale")["points"]}
    cost = {value: points["batch", value]["processor_us_a_record"] for value in ("10,000", "500,000", "2,000,000")}
    assert "{:.0f} µs of CPU in batches of 10,000, {:.0f} µs in batches of 500,000 and {:.0f} µs".format(*cost.values()) in text
    twenty, one = points["tables", "20"], points["tables", "1"]
    assert f"take {int(twenty['processor_s'])} CPU seconds instead of {one['processor_s']:.0f}" in text
    grown = result_of("growth")
    rising, random = (growth.ratio(grown, kind) for kind in (growth.RISING, growth.RANDOM))
    assert f"a batch takes {rising:.2f} times as long at 100 million rows" in text and f"with random ones {random:.2f} times" in text
    readme = " ".join((PROJECT / "README.md").read_text(encoding="utf-8").split())
    assert f"takes {rising:.2f} times as long as at one million with rising ids, and {random:.2f} times with random ones" in readme


def test_the_speed_of_transactions_on_the_delivery_page_was_measured() -> None:
    parts = {(each["rival"], each["codec"]): f"{each['of_plain']:.2f}" for each in result_of("producer")["rivals"]}
    plain, packed = (
        [parts[f"transactional, {size} records a transaction", codec] for size in ("1,000", "100", "10,000")] for codec in ("none", "gzip")
    )
    text = (
        f"at 1,000 records a transaction {plain[0]} of kafka-python's own plain idempotent producer without compression, {packed[0]} "
        f"with gzip; at 100 records {plain[1]} and {packed[1]}, at 10,000 {plain[2]} and {packed[2]}."
    )
    assert text in " ".join((PROJECT / "docs" / "tutorial" / "delivery.md").read_text(encoding="utf-8").split())


def test_make_bench_runs_existing_modules_with_options_that_they_support() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile[makefile.index("\nbench:") :].split("\n\n")[0]
    runs = re.findall(r"python -m bench\.(\w+)((?: .*)?) --json docs/benchmarks/([\w-]+)\.json", recipe)
    assert len(runs) == recipe.count("\n\t@") and ("throughput", "", "throughput") in runs
    for module, more, _ in runs:
        text = (PROJECT / "bench" / f"{module}.py").read_text(encoding="utf-8")
        assert all(f'"{option}"' in text for option in ("--json", *re.findall(r"--\w+", more))), module


def test_the_durations_of_a_check_on_the_quality_page_were_measured() -> None:
    text = (PROJECT / "docs" / "how-to" / "quality.md").read_text(encoding="utf-8")
    found: dict[int, list[str]] = {}
    for each in result_of("quality")["sizes"]:
        found.setdefault(each["rows"], []).append(f"{statistics.median(run['wall_s'] for run in each['runs']):.1f}")
    assert [
        f"| {rows:,} | {' | '.join(medians)} |" for rows, medians in found.items() if f"| {rows:,} | {' | '.join(medians)} |" not in text
    ] == []
