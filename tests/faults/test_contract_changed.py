"""A contract that changes while a batch is unfinished: no record is in both tables or in none (I9)."""

from __future__ import annotations

import pytest

from tests.faults.conftest import PipelineFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RULE, STRICT = "amount >= 0", "amount >= 100"


def test_a_batch_whose_quarantine_was_decided_by_the_old_rule_is_finished_by_it_and_the_next_by_the_new(pipeline: PipelineFactory) -> None:
    lake = pipeline(batch=1500, max_share=0.9)
    lake.produce(3200, poison=40)
    lake.crash("after_quarantine:kill@1")
    contract = lake.project / "tables" / "orders.yml"
    text = contract.read_text(encoding="utf-8")
    assert RULE in text
    contract.write_text(text.replace(RULE, STRICT), encoding="utf-8")
    lake.complete()
    hashes = [commit.metadata["contract_hash"] for commit in lake.commits() if commit.metadata and commit.ranges]
    assert len(hashes) >= 3 and hashes[0] == hashes[1] and set(hashes[2:]).isdisjoint(hashes[:2])
    lake.judge(valid_in_quarantine=True).assert_clean()
