"""A contract that changes while a batch is unfinished: no record is in both tables or in none (I9)."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal

import pytest

from ingest.oracle.tables import select
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
    # Which good records are rows and which are not, the oracle does not ask then.
    batch_of = {number: commit.ranges for commit in lake.commits() for app, number in commit.txns if app.endswith("/target")}
    cheap = Counter(
        next(number for number, ranges in batch_of.items() if ranges[partition][0] <= offset < ranges[partition][1]) <= 1
        for partition, offset, amount in select(lake.delta(), ["_partition", "_offset", "amount"])
        if amount < 100
    )
    assert cheap.keys() == {True}, "rows of the batches that were begun under the old rule, and none of a later one"
    refused = select(lake.delta("quarantine"), ["batch_id", "reason_detail", "value"])
    good = Counter(batch <= 1 for batch, rule, value in refused if rule == "amount_not_negative" and amount_of(value) >= 0)
    assert good.keys() == {False}, "in quarantine by the new rule: records of the batches begun under it, and none of an earlier one"
    dear = [batch for batch, rule, value in refused if rule == "amount_not_negative" and amount_of(value) >= 100]
    assert dear == []


def amount_of(value: bytes) -> Decimal:
    return Decimal(str(json.loads(value)["amount"]))
