"""The contract changes after a batch was cut off: the batch is rolled back and repeated under the new contract (I9)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pytest

from ingest.lab.oracle.oracle_tables import select
from ingest.lab.oracle.sources import Number
from tests.faults.conftest import PipelineFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RULE, STRICT = "amount >= 0", "amount >= 100"


def test_a_batch_cut_off_under_the_old_rule_is_rolled_back_and_repeated_under_the_new_rule(pipeline: PipelineFactory) -> None:
    """No record is in both tables or in neither, and each is where the rule of its own epoch puts it."""
    lake = pipeline(batch=1500, max_share=0.9)
    lake.produce(3200, poison=40)
    contract = lake.project / "tables" / "orders.yml"
    old = contract.read_text(encoding="utf-8")
    assert RULE in old
    contract.write_text(old.replace(RULE, STRICT), encoding="utf-8")
    lake.crash("after_quarantine:kill@3")
    assert cheap(refused := rejected(lake.delta("quarantine"))) and {number for number, _ in refused} == {(1, 2), (1, 3)}
    contract.write_text(old, encoding="utf-8")
    lake.complete()

    hashes = {each.number[0]: each.metadata["contract_hash"] for each in lake.batches() if each.metadata}
    assert hashes.keys() == {1, 2} and hashes[1] != hashes[2]
    assert cheap(rejected(lake.delta("quarantine"))) == {1}, "good records are in quarantine under the strict rule only"
    rows = [((epoch, 0), amount) for epoch, amount in select(lake.delta(), ["_epoch", "amount"])]
    assert cheap(rows) == {2}, "good records are rows under the other rule only"
    lake.verified()
    lake.judge(valid_in_quarantine=True).assert_clean()


def rejected(quarantine: Path) -> list[tuple[Number, Decimal]]:
    """The batches and amounts of the records that the rule rejected."""
    rows = select(quarantine, ["epoch", "batch", "reason_detail", "value"])
    return [
        ((epoch, batch), Decimal(str(json.loads(value)["amount"]))) for epoch, batch, why, value in rows if why == "amount_not_negative"
    ]


def cheap(amounts: Iterable[tuple[Number, Decimal]]) -> set[int]:
    """The epochs with a good amount that only the strict rule rejects."""
    return {epoch for (epoch, _), amount in amounts if 0 <= amount < 100}
