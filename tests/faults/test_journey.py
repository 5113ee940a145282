"""One lake through a fault of each family, one after the other: killed, its broker killed, its checkpoint and its table put back.

What `make test` keeps of the fault tests; each fault has a test of its own, for all its ways, in `make faults`.
"""

from __future__ import annotations

import json
import shutil

import pytest
from deltalake import DeltaTable

from ingest.local.broker import Broker
from tests.faults.conftest import broker_back, broker_killed
from tests.faults.pipeline import Pipeline

pytestmark = pytest.mark.timeout(900)


def test_after_a_fault_of_each_family_the_oracle_finds_nothing_lost_or_doubled(alone: tuple[Broker, Pipeline]) -> None:
    own, lake = alone
    # Without copies: which of them is the row after a RESTORE depends on what one batch reads.
    lake.produce(2600, poison=40, duplicate_share=0)

    lake.crash("during_target:kill@0")
    assert lake.written() == [] and lake.orphans(), "files of no version"

    lake.crash("after_target:kill@0")
    assert (lake.written(), lake.numbers("commits")) == ([0], [])
    first = lake.version_of(0)
    kept = lake.folder / "kept"
    shutil.copytree(lake.checkpoint(), kept)

    driver = broker_killed(own, lake)  # in the middle of batch 1; batch 0 was skipped
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
