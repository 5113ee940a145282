"""One lake through faults of seven families, one after the other: killed, by a clock a day off, a second driver, its broker killed, its
checkpoint and its table put back; with poison and aborted transactions in the topic.

What `make test` keeps of the fault tests; each fault has a test of its own, for all its ways, in `make faults`.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingest.chaos.clock import DAY_S, library, shifted
from ingest.local.broker import Broker
from tests.faults.conftest import broker_back
from tests.faults.pipeline import Pipeline

pytestmark = pytest.mark.timeout(900)


def test_after_faults_of_seven_families_the_oracle_finds_nothing_lost_or_doubled(alone: tuple[Broker, Pipeline], tmp_path: Path) -> None:
    own, lake = alone
    # Without copies: which of them is the row after a RESTORE depends on what one batch reads.
    lake.produce(2600, poison=40, duplicate_share=0)

    lake.crash("during_target:kill@0")
    assert lake.written() == [] and lake.orphans(), "files of no version"

    # The next start, which is to prove this batch, has the right clock again. Where none can be moved this is a kill like others.
    preload = library(tmp_path)
    lake.crash("after_target:kill@0", environment=shifted(preload, DAY_S) if preload is not None else None)
    assert (lake.written(), lake.numbers("commits")) == ([0], [])
    first = lake.version_of(0)
    if preload is not None:
        (committed_ms,) = (told["timestamp"] for told in DeltaTable(str(lake.delta())).history() if told["version"] == first)
        assert committed_ms / 1000 - time.time() > DAY_S / 2, "the clock was moved"
    kept = lake.folder / "kept"
    shutil.copytree(lake.checkpoint(), kept)

    driver = lake.start("--every", "0s", fault="after_offset_log:hang@1")
    driver.stopped()  # in the middle of batch 1; batch 0 was skipped
    lake.environment = {**lake.environment, "INGEST_LOCK_WAIT_S": "0.5"}
    assert "ingest: LOCKED: " in lake.start().ended(3) and lake.written() == [0]
    own.kill()
    driver.proceed()
    if not broker_back(own, lake, driver, commits=2):
        lake.complete()
    assert lake.written() == lake.numbers("commits") and lake.written()[:3] == [0, 1, 2]

    shutil.rmtree(lake.checkpoint())
    shutil.copytree(kept, lake.checkpoint())
    assert "ingest rebase shop.orders --to table" in lake.refused("CHECKPOINT_OLD")

    DeltaTable(str(lake.delta())).restore(first)
    restored = lake.commits()[-1].version
    (told,) = json.loads(lake.command("status", "--json").ended(3))["tables"]
    assert told["refusal"]["code"] == "TABLE_REWOUND"

    lake.command("rebase", "orders", "--to", "table").ended(0)
    lake.produce(500, seed=2)
    lake.complete()
    lake.verified()
    lake.judge(own_versions=frozenset({restored})).assert_clean()
