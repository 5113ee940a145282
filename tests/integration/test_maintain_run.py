"""`ingest maintain` beside a real run, and killed at each of its steps."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingest.lab.broker.embedded_broker import Broker
from ingest.runtime.crash_points import MAINTAINING
from tests.faults.driver import until
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def lake(tmp_path: Path, broker: Broker, topic: Callable[..., str]) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path / "lake", broker.bootstrap_servers, topic(2), batch=100)
    yield made
    made.close()


def retired(lake: Pipeline) -> int:
    return int(lake.verified()[0]["quarantine"]["retired"])


def test_a_maintenance_works_beside_a_run_that_commits(lake: Pipeline) -> None:
    """Neither waits for the other, and nothing is lost: both rebase."""
    lake.produce(1500, poison=40)
    run = lake.start("--every", "0s")
    until(lambda: len(lake.batches("quarantine")) > 1, lambda: run.said)
    for idle in (False, True):
        if idle:
            until(lambda: "lag 0 " in run.said, lambda: run.said)
        output = lake.command("maintain", "--json", "--open-too", "--keep-quarantine", "0s", "--wait", "0s").ended(0)
        done = json.loads(output[output.index("{") :])["tables"][0]
        assert {each["table"]: each["retired"] > 0 for each in done["delta"]}["quarantine"], output
        assert run.process.poll() is None, run.said
    short = ("--vacuum-retention", "0s", "--force-retention", "a test", "--wait", "0s")
    assert "LOCKED" in lake.command("maintain", *short).ended(3), "it may delete what a batch is about to commit"
    run.signal(signal.SIGTERM)
    run.ended(0)
    assert retired(lake) > 0
    lake.complete()
    lake.verified()


def test_a_continuous_run_merges_its_small_files_by_itself_and_goes_on(lake: Pipeline) -> None:
    lake.write_contracts(batch=50)
    lake.produce(1200)
    run = lake.start("--every", "0s")
    until(lambda: any(commit.operation == "OPTIMIZE" for commit in lake.commits()), lambda: run.said)
    lake.produce(300, seed=2)
    until(lambda: len(lake.batches()) > 30, lambda: run.said)
    run.signal(signal.SIGTERM)
    run.ended(0)
    assert "maintenance failed" not in run.said
    assert len(DeltaTable(lake.delta()).file_uris()) < len(lake.batches())
    lake.complete()
    lake.verified()


def test_beside_a_run_through_spark_a_maintenance_is_refused_and_says_what_to_do(lake: Pipeline) -> None:
    lake.produce(300, poison=20)
    run = lake.start("--every", "0s", "--writer", "spark", environment={"INGEST_LEDGER_EVERY_S": "0"})
    until(lambda: len(lake.commits("ledger")) > 2, lambda: run.said)
    lake.command("maintain", "--wait", "1s").ended(0)  # there is nothing to do
    said = lake.command("maintain", "--open-too", "--keep-quarantine", "0s", "--wait", "1s").ended(3)
    assert "LOCKED" in said and "--maintain-every" in said
    run.signal(signal.SIGTERM)
    run.ended(0)
    lake.command("maintain", "--wait", "0s").ended(0)
    lake.verified()


def test_a_maintenance_killed_at_each_step_is_completed_by_the_next_one_and_balances_in_between(lake: Pipeline) -> None:
    lake.write_contracts(batch=50)
    lake.produce(450, poison=30)
    lake.complete()
    for point in MAINTAINING:
        lake.command("maintain", "--open-too", "--keep-quarantine", "0s", fault=f"{point}:kill@0").ended(-9)
        lake.verified()
    lake.command("maintain", "--open-too", "--keep-quarantine", "0s").ended(0)
    assert retired(lake) > 0
    lake.produce(300, seed=2)
    lake.complete()
    lake.verified()
