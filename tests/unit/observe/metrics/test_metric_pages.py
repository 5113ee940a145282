"""docs/reference/metrics.md, the alert rules and the dashboard name exactly the metrics that exist, and Prometheus can read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingest.observe.metrics.board import METRICS

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[4]
RULES = PROJECT / "docs/monitoring/oncelake-alerts.yml"
DASHBOARD = PROJECT / "docs/monitoring/oncelake-dashboard.json"
PAGE = PROJECT / "docs/reference/metrics.md"
PROMTOOL = shutil.which("promtool")
NEEDS_PROMTOOL = pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian package prometheus) is not installed")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return found


def expressions() -> list[str]:
    """The queries of rules and panels, with values in place of Grafana's variables."""
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    variables = {"$__rate_interval": "5m", "$pipeline": ".*", "$table": ".*"}
    for name, value in variables.items():
        shown = [text.replace(name, value) for text in shown]
    return [*(rule["expr"] for rule in rules()), *shown]


def series() -> set[str]:
    """The names of all time series: a histogram has three."""
    found = set()
    for metric in METRICS:
        found |= {f"{metric.name}{end}" for end in ("_bucket", "_sum", "_count")} if metric.kind == "histogram" else {metric.name}
    return found


def promtool(*words: object) -> None:
    done = subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_lists_every_metric_as_the_source_describes_it() -> None:
    cells = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `oncelake_")]
    assert cells == [[f"`{m.name}`", m.kind, ", ".join(m.labels), m.unit, ", ".join(m.sources), m.meaning] for m in METRICS]


def test_names_follow_the_conventions_of_prometheus() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"oncelake_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert "seconds" not in metric.unit or re.search(r"_seconds(_total)?$", metric.name), metric.name
        assert metric.meaning.endswith(".")


def test_rules_and_dashboard_name_only_metrics_and_labels_that_exist() -> None:
    labels = {label for metric in METRICS for label in metric.labels} | {"le", "job"}
    for text in expressions():
        named = set(re.findall(r"\boncelake_\w+", text))
        assert named <= series() and (named or text.startswith("up{")), text
        used = re.findall(r"(\w+)\s*=~?\"", text) + [
            each for group in re.findall(r"(?:by|on|ignoring) \(([^)]*)\)", text) for each in group.split(", ")
        ]
        assert set(used) <= labels, text


def test_no_query_adds_up_what_a_run_and_the_lake_both_report() -> None:
    both = {metric.name for metric in METRICS if len(metric.sources) > 1}
    added = {name for text in expressions() for name in re.findall(r"\bsum(?: by \([^)]*\))? ?\((?:\w+\()?(oncelake_\w+)", text)}
    assert added and not added & both, "the same table would count twice: take the maximum by table first"


def test_every_metric_is_on_the_dashboard_or_in_a_rule() -> None:
    text = "\n".join(expressions())
    unused = {metric.name for metric in METRICS if metric.name not in text}
    assert unused == {"oncelake_build_info"}


def test_every_rule_says_what_happened_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 8
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "action"}


def test_the_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


@NEEDS_PROMTOOL
def test_prometheus_accepts_the_rules_and_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    promtool("check", "rules", RULES)
    queries = {"groups": [{"name": "all", "rules": [{"record": f"q{at}", "expr": text} for at, text in enumerate(expressions())]}]}
    (tmp_path / "queries.yml").write_text(yaml.safe_dump(queries), encoding="utf-8")
    promtool("check", "rules", tmp_path / "queries.yml")


@NEEDS_PROMTOOL
def test_each_alert_fires_in_its_case_only(tmp_path: Path) -> None:
    cases = (Path(__file__).parent / "alerts_test.yml").read_text(encoding="utf-8").replace("RULES", str(RULES))
    (tmp_path / "alerts_test.yml").write_text(cases, encoding="utf-8")
    promtool("test", "rules", tmp_path / "alerts_test.yml")
