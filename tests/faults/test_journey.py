"""One lake goes through faults of seven families in turn: a kill between quarantine and target with a clock a day off, deleted
checkpoints, a kill during a write, a second driver, a killed broker, and a restored table. The topic contains poison and aborted
transactions.

This is the part of the fault tests that `make test` runs. In `make faults`, each fault has its own test with all its variants.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.chaos.clock import DAY_S, library, shifted
from tests.faults.conftest import broker_back
from tests.faults.pipeline import Pipeline

pytestmark = pytest.mark.timeout(900)


def test_after_faults_of_seven_families_the_oracle_finds_nothing_lost_or_duplicated(alone: tuple[Broker, Pipeline], tmp_path: Path) -> None:
    own, lake = alone
    # Without copies: which copy is the row after a RESTORE depends on the batches.
    lake.produce(2600, poison=40, duplicate_share=0)

    # The next start has the right clock again. Without a C compiler the clock stays right, and this is an ordinary kill.
    preload = library(tmp_path)
    lake.crash("after_quarantine:kill@2", environment=shifted(preload, DAY_S) if preload is not None else None)
    assert (lake.written(), lake.written("quarantine")) == ([], [(1, 2)])
    if preload is not None:
        assert lake.batches("quarantine")[0].timestamp_ms / 1000 - time.time() > DAY_S / 2, "the clock was moved"
    shutil.rmtree(lake.checkpoints)

    output = lake.crash("during_target:kill@3").said
    assert "there is no checkpoint of epoch 1: nothing is lost" in output
    assert lake.written() == [(2, 2)] and lake.orphans(), "files of no version"
    assert [each.number for each in lake.commits("quarantine") if each.kind == "rollback"] == [(2, 1)]
    first = lake.commits()[-1].version

    driver = lake.start("--every", "0s", fault="after_offset_log:hang@3")
    driver.stopped()
    lake.environment = {**lake.environment, "INGEST_LOCK_WAIT_S": "0.5"}
    assert "ingest: LOCKED: " in lake.start().ended(3) and lake.written() == [(2, 2), (3, 2)]
    own.kill()
    driver.proceed()
    if not broker_back(own, lake, driver, commits=2):
        lake.complete()
    assert len(lake.written()) > 2

    restored = lake.restore("target", first)
    (status,) = json.loads(lake.command("status", "--json").ended(3))["tables"]
    assert status["refusal"]["code"] == "TABLE_REWOUND" and "`ingest seek shop.orders --to table`" in status["refusal"]["remedy"]
    lake.seek()
    lake.produce(500, seed=2)
    lake.complete()
    lake.verified()
    lake.judge(own_versions=frozenset({restored})).assert_clean()
