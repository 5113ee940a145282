"""`ingest metrics`: the figures are those of the tables, and the file is replaced in one step."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition

from ingest.contract.parts import TopicSource
from ingest.kafka.open_transactions import HeldOffsets, Listed
from ingest.observe.metrics.board import Board
from ingest.observe.metrics.lake_metrics import measure, measure_transactions
from ingest.observe.report.evidence import last_proof
from ingest.observe.report.summary import Summary, summary
from ingest.runtime.places import Places
from tests.another_account import forbidden, open_folder
from tests.unit.observe.report.report_lake import NOW, SILENT, ReportLake
from tests.unit.verify.proof_lake import CONTRACT

pytestmark = pytest.mark.unit


def values(board: Board) -> dict[str, float]:
    """`name[ label]` to value."""
    return {
        " ".join([sample.name, *(value for label, value in sample.labels.items() if label not in ("pipeline", "table"))]): sample.value
        for family in board.registry.collect()
        for sample in family.samples
        if sample.name != "oncelake_build_info"
    }


def measured(summary: Summary) -> dict[str, float]:
    board = Board("lake")
    measure(board, summary)
    return values(board)


@pytest.fixture
def lake(tmp_path: Path) -> ReportLake:
    """Two batches, two days apart, in two epochs; the first with a duplicate."""
    made = ReportLake(tmp_path)
    made.batch_at(0, 0, 10, range(8), [8], duplicates=1)
    made.start()
    made.batch_at(2 * 86400, 10, 20, range(10, 17), [17, 18, 19])
    return made


def test_totals_are_of_all_batches_and_the_quarantined_share_of_the_last_day(lake: ReportLake) -> None:
    found = measured(lake.summary())
    counts = [found[f"oncelake_records_{name}_total"] for name in ("read", "inserted", "duplicate", "quarantined")]
    assert counts == [20, 15, 1, 4] and found["oncelake_batches_total"] == 2
    assert found["oncelake_quarantine_ratio"] == 0.3
    assert found["oncelake_quarantine_open_records"] == 4
    assert (found["oncelake_epoch"], found["oncelake_batch"], found["oncelake_run_up"]) == (2, 2, 0)
    assert (found["oncelake_stored_rows target"], found["oncelake_stored_files target"]) == (15, 2)
    assert found["oncelake_stored_bytes target"] > 0
    assert found["oncelake_latency_seconds 0.5"] == pytest.approx(2.0)
    assert not [name for name in found if re.search("quality|proof|lag", name)], "absent, not zero"


def test_replayed_records_are_no_longer_open(lake: ReportLake) -> None:
    lake.set_state("replayed", 8, 17)
    assert measured(lake.summary())["oncelake_quarantine_open_records"] == 2


def test_offsets_that_a_seek_left_out_stay_visible(lake: ReportLake) -> None:
    lake.seek(25, gaps=[(20, 25)])
    lake.batch_at(2 * 86400 + 1, 25, 30, range(25, 30))
    assert measured(lake.summary())["oncelake_gap_accepted_offsets"] == 5


def test_a_table_that_does_not_exist_has_only_its_status(tmp_path: Path) -> None:
    places = Places(str(tmp_path / "lake"), str(tmp_path / "c"), "shop", "orders")
    assert measured(summary(CONTRACT, places, SILENT)) == {"oncelake_run_up": 0, "oncelake_epoch": 0}


def test_the_newest_validation_run_counts(lake: ReportLake) -> None:
    lake.quality("a", 0, "critical", "critical")
    lake.quality("b", 60, None, "warning", "critical", "info")
    found = measured(lake.summary())
    assert (found["oncelake_quality_failures critical"], found["oncelake_quality_failures other"]) == (1, 2)
    assert found["oncelake_quality_timestamp_seconds"] == (NOW + timedelta(seconds=60)).timestamp()


def test_the_newest_proof_counts_unless_it_was_altered(lake: ReportLake) -> None:
    proof = json.loads(lake.proven().read_bytes())
    found = measured(lake.summary())
    assert found["oncelake_proof_ok"] == 1
    assert found["oncelake_proof_timestamp_seconds"] == datetime.fromisoformat(proof["made_at"]).timestamp()
    lake.take(3)
    path = lake.proven()
    assert measured(lake.summary())["oncelake_proof_ok"] == 0
    path.write_bytes(path.read_bytes().replace(b'"ok":false', b'"ok":true'))
    found = measured(lake.summary())
    assert found["oncelake_proof_ok"] == 0 and "oncelake_proof_timestamp_seconds" not in found


def test_a_proof_that_this_account_may_not_read_has_no_metrics() -> None:
    with open_folder() as folder:
        lake = ReportLake(folder)
        lake.batch_at(0, 0, 10, range(8), [8, 9])
        path = lake.proven()
        found = lake.summary()
        with forbidden(path, 0o220):
            unread = last_proof(lake.places)
    assert "oncelake_proof_ok" in measured(found)
    assert not [name for name in measured(replace(found, proof=unread)) if "proof" in name], "unknown, not wrong"


def test_a_hold_of_the_audited_version_is_dated(lake: ReportLake) -> None:
    assert not [name for name in measured(lake.summary()) if "audited" in name or "held_t" in name]
    lake.held()
    summary = lake.summary()
    found = measured(summary)
    assert found["oncelake_audited_version"] == lake.target.version() and summary.audit.held is not None
    assert found["oncelake_held_timestamp_seconds"] == datetime.fromisoformat(summary.audit.held.since).timestamp()


def test_lag_process_and_refusal_come_from_the_status(lake: ReportLake) -> None:
    known = lake.summary()
    now = replace(known.status, running="host a", lag=9, refusal=None)
    found = measured(replace(known, status=now))
    assert (found["oncelake_run_up"], found["oncelake_lag_offsets"]) == (1, 9)
    refused = replace(known.status, next="refuse", refusal={**SILENT, "code": "TABLE_REWOUND"})
    assert measured(replace(known, status=refused))["oncelake_error_info TABLE_REWOUND"] == 1
    silent = measured(replace(known, status=replace(known.status, next="continue at 0:20", refusal=SILENT)))
    assert not [name for name in silent if "error" in name], "a broker that does not answer refuses no start"


def listed(name: str, topic: str, start: int, age_s: float) -> Listed:
    held = HeldOffsets(topic, 0, start, 100, 130, 30)
    return Listed(name, 1, 0, "Ongoing", age_s, 60_000, 1, (TopicPartition(topic, 0),), (held,))


@pytest.mark.parametrize(
    ("source", "offsets", "age_s"),
    [
        ({"topic": "orders"}, 30, 1000),
        ({"topics": ["orders", "payments"]}, 60, 2000),
        ({"topic_pattern": "pay.*"}, 30, 2000),
        ({"topic_pattern": "order"}, 0, 0),
    ],
)
def test_transactions_count_for_the_topics_that_they_hold_back(source: dict[str, Any], offsets: int, age_s: int) -> None:
    rows = [listed("a", "orders", 100, 1000.0), listed("b", "orders", 110, 5000.0), listed("c", "payments", 100, 2000.0)]
    board = Board("lake")
    measure_transactions(board, {"shop.orders": TopicSource.model_validate({**source, "format": "json"})}, rows)
    assert values(board) == {"oncelake_transaction_held_offsets": offsets, "oncelake_transaction_age_seconds": age_s}


def command(lake: ReportLake, *words: str) -> subprocess.CompletedProcess[str]:
    project = Path(lake.places.lake).parent
    (project / "tables").mkdir(exist_ok=True)
    (project / "tables/orders.yml").write_text(CONTRACT.to_json(), encoding="utf-8")
    places = {"INGEST_PROJECT": project, "INGEST_LAKE": lake.places.lake, "INGEST_CHECKPOINTS": lake.places.checkpoints}
    settings = {**os.environ, **{name: str(value) for name, value in places.items()}, "INGEST_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    call = [sys.executable, "-m", "ingest", "metrics", *words]
    return subprocess.run(call, env=settings, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_replaces_the_file_and_reports_a_table_that_it_cannot_read(lake: ReportLake) -> None:
    lake.keep()
    folder = Path(lake.places.lake).parent / "node_exporter"
    folder.mkdir()
    (folder / "oncelake.prom").write_text("old")
    done = command(lake, "--out", str(folder / "oncelake.prom"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "BROKER_UNREACHABLE" in done.stderr
    text = (folder / "oncelake.prom").read_text()
    (measured_at,) = re.findall(r'oncelake_measured_timestamp_seconds\{pipeline="shop",table="orders"\} (.*)', text)
    assert 0 <= time.time() - float(measured_at) < 60
    assert 'oncelake_records_read_total{pipeline="shop",table="orders"} 20.0' in text
    assert [path.name for path in folder.iterdir()] == ["oncelake.prom"], "no temporary file is left"
    (Path(lake.places.target) / "_delta_log" / f"{0:020}.json").unlink()
    done = command(lake, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], document["error"]["code"]) == (4, False, "TABLE_UNREADABLE")
    (table,) = document["tables"]
    assert table["table"] == "shop.orders"
    assert {"name": "oncelake_error_info", "code": "TABLE_UNREADABLE", "value": 1.0} in table["samples"]


def test_the_name_of_the_file_is_one_that_node_exporter_reads(lake: ReportLake) -> None:
    done = command(lake, "--out", "oncelake.txt")
    assert done.returncode == 2 and "METRICS_FILE_NAME" in done.stderr
