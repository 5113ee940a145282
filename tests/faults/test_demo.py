"""`ingest demo` as a user runs it: with few events, from start to end, and interrupted."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.broker.ports import is_free
from ingest.lab.demo.demo_quality import ODD
from ingest.lab.demo.demo_sent import ids_of, read_manifest
from tests.faults.driver import left

# It starts five JVMs, one after the other or in pairs. On a busy machine each start takes minutes.
pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

PROJECT = Path(__file__).resolve().parents[2]
EVENTS = 20_000
INGEST = [sys.executable, "-m", "ingest"]
# Python resolves a relative PYTHONPATH in the folder where it starts: the commands would run the code of another checkout, or none.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PROJECT)}


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [*INGEST, "demo", "--project", str(PROJECT), "--folder", str(folder), "--events", str(EVENTS), *more]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, cwd=folder, env=ENVIRONMENT)


def test_the_commands_run_this_code_wherever_the_tests_were_started(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import ingest; print(ingest.__file__)"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=ENVIRONMENT)
    assert Path(ran.stdout.strip()) == PROJECT / "ingest/__init__.py"


@pytest.mark.slow
def test_after_kills_and_lost_checkpoints_only_our_pipeline_is_exact(tmp_path: Path) -> None:
    demo = start(tmp_path, "--json")
    out, err = demo.communicate()
    assert demo.returncode == 0, err
    report = json.loads(out)
    assert (report["schema"], report["ok"], report["verify"]["exit_code"]) == ("oncelake/demo/1", True, 0)

    assert report["produced"]["events"] == EVENTS
    assert report["produced"]["poison"] == 50
    assert report["produced"]["aborted"] > 0
    kills = [(kill["pipeline"], kill["checkpoint_files"] > 0) for kill in report["kills"]]
    assert kills == [("oncelake", False), ("oncelake", True), ("by hand", True)]

    tables = {(row["table"], row["pipeline"]): row for row in report["tables"]}
    assert tables.keys() == {(table, who) for table in ("shop.orders", "shop.payments") for who in ("oncelake", "by hand")}
    for (_, who), row in tables.items():
        sent = row["sent"]
        assert row["exact"] == (who == "oncelake"), row
        if who == "oncelake":
            assert row["rows"] == row["distinct_ids"] == sent["events"] + row["allowed"]
            assert row["quarantined"] + row["allowed"] == sent["poison"]
        else:
            assert row["duplicates"] >= sent["retries"]
            assert row["aborted"] >= sent["aborted"] > 0
    # Without its checkpoint it starts at the earliest offset, so whole batches exist twice.
    assert any(row["duplicates"] > row["sent"]["retries"] for (_, who), row in tables.items() if who == "by hand")

    check = report["check"]
    assert check["exit_code"] == 1, "the suite finds records that the contract's rules accept"
    check_output = "\n".join(check["output"])
    assert "shop.payments: FAILED" in check_output and "expect_column_values_to_be_in_set (method): 20 of" in check_output
    pages = [line.split("page: ")[1] for line in check["output"] if "page: " in line]
    assert pages and all(Path(page.removeprefix("file://")).exists() for page in pages)
    audit_names_exactly_the_rows_that_the_manifest_names(Path(report["places"]["folder"]))
    payments = tables["shop.payments", "oncelake"]["rows"]
    assert any(line.split()[:2] == [str(payments)] * 2 for line in report["answer"]["output"]), "as many ids as rows"

    assert left(tmp_path) == []
    assert not list(tmp_path.glob("*/*/tmp"))


def audit_names_exactly_the_rows_that_the_manifest_names(folder: Path) -> None:
    """Audit the tables by hand by event id, against the demo's own topics, and compare every line with the producer's manifest."""
    sent = read_manifest(folder / "manifest.jsonl")
    with Broker(folder / "broker") as broker:
        for table, column in (("orders", "order_id"), ("payments", "payment_id")):
            target, listed, one = folder / "by_hand/lake/shop" / table / "target", folder / f"{table}.csv", sent[table]
            how = ["--topic", table, "--event-id", column, "--record-id", f"$.{column}", "--to", "end", "--out", str(listed)]
            command = [*INGEST, "audit", str(target), *how, "--json", "--bootstrap-servers", broker.bootstrap_servers]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=ENVIRONMENT)
            assert done.returncode == 1, done.stderr
            named: dict[str, Counter[str]] = {}
            of_broken_records = set(one.poison_ids)
            for line in csv.DictReader(listed.open(encoding="utf-8")):
                named.setdefault(line["fault"], Counter())[line["event_id"]] += int(line["rows"])
                # Spark's from_json reads an id even in a record of invalid UTF-8, whose id the manifest does not know.
                if (int(line["partition"]), int(line["offset"])) in one.poison:
                    of_broken_records.add(line["event_id"])
            rows = ids_of(target, column)
            good = one.ids
            assert named.keys() <= {"doubled", "aborted"}, "nothing is lost, and every row has a record"
            assert named["aborted"] == Counter({id: count for id, count in rows.items() if id in one.aborted})
            twice = Counter({id: count - 1 for id, count in rows.items() if id in good and count > 1})
            assert Counter({id: count for id, count in named["doubled"].items() if id in good}) == twice
            others = named["doubled"].keys() - good - of_broken_records
            assert len(others) in ((0, ODD) if table == "payments" else (0,)), "the demo's odd payments are not in the manifest"


@pytest.mark.slow
def test_the_output_fits_into_forty_lines_of_a_hundred_characters(tmp_path: Path) -> None:
    out, err = start(tmp_path).communicate()
    lines = out.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 100, out
    assert [sum(f"  {who}" in line and "KILLED" in line for line in lines) for who in ("oncelake", "by hand")] == [2, 1], err
    assert sum("DELETED" in line for line in lines) == 2 and "exactly once" in lines[-1]


@pytest.mark.parametrize(
    ("number", "at"),
    [
        pytest.param(signal.SIGINT, "by hand   started", id="Ctrl-C", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "producer  ", id="SIGTERM"),
    ],
)
def test_an_interrupted_demo_leaves_no_process_and_no_open_port(tmp_path: Path, number: signal.Signals, at: str) -> None:
    demo = start(tmp_path)
    try:
        port = wait_for(demo, at)
        assert left(tmp_path)
        demo.send_signal(number)
        # Usually it ends at once. If the signal hits a Kafka client's call, its transaction is abandoned at its deadline.
        demo.communicate(timeout=120)
        assert demo.returncode == 130
        assert left(tmp_path) == []
        assert is_free(port)
    finally:
        demo.terminate()
        demo.communicate()


def wait_for(demo: subprocess.Popen[str], text: str) -> int:
    """Read the output until a line contains `text`; return the broker's port."""
    assert demo.stdout is not None
    port = 0
    for line in demo.stdout:
        if match := re.search(r"Kafka answers at 127\.0\.0\.1:(\d+)", line):
            port = int(match.group(1))
        if text in line:
            break
    assert port, "the output contains the broker's address"
    return port


@pytest.mark.slow
def test_of_two_chains_of_payments_with_the_same_kills_ours_balances_to_the_cent(tmp_path: Path) -> None:
    command = [*INGEST, "demo", "payments", "--folder", str(tmp_path), "--events", "300", "--json"]
    demo = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=ENVIRONMENT)
    assert demo.returncode == 0, demo.stderr
    report = json.loads(demo.stdout)
    assert (report["ok"], report["verify"]["exit_code"], report["kills"]) == (True, 0, {"oncelake": 6, "naive": 2})
    ours, naive = report["chains"]["oncelake"], report["chains"]["naive"]
    assert [each["payments"] for each in ours] == [300] * 6 and len({each["cents"] for each in ours}) == 1
    assert ours[1]["copies"] > 0, "the killed relay has published a batch twice"
    assert not any(each["exact"] for each in naive[1:]) and sum(each["lost"] + each["doubled"] for each in naive) > 0
    assert report["effects"] == {"SUCCESS": 300}
    places = [seen["place"] for seen in report["trail"]["sightings"]]
    assert places[0] == "outbox" and {"kafka", "sink", "effect", "lake"} <= set(places)
    assert left(tmp_path) == []
