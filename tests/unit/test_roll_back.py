"""What an uncommitted batch left in quarantine and will be read again goes; nothing else does (I7)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.delta_sql import At, DataFusion
from ingest.recovery.facts import QuarantineFacts
from ingest.recovery.roll_back import RollBack, roll_back
from ingest.stream.mark import BatchId
from tests.unit.test_decide import GOOD

EARLIEST = {0: 0, 1: 3}  # as the topic of GOOD has it
RECORDS = list(product((1, 3, 4, 5), (2, 3, 4), ("id", "it's {another}"), (0, 1, 2), (0, 6, 7, 8)))


@pytest.fixture(scope="module")
def quarantine(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("quarantine"))
    columns = zip(("epoch", "batch", "topic_id", "partition", "offset"), zip(*RECORDS, strict=True), strict=True)
    write_deltalake(path, pa.table({name: list(values) for name, values in columns}))
    return path


@pytest.mark.parametrize("topic_id", ["id", "it's {another}"])
@pytest.mark.parametrize("earliest", [{0: 7, 1: 0}, {0: 7, 1: 8, 2: 9}, {}])
@pytest.mark.parametrize("newest", [BatchId(3, 3), BatchId(4, 1), BatchId(0, 0)])
def test_the_predicate_takes_what_the_rule_takes(quarantine: str, newest: BatchId, earliest: dict[int, int], topic_id: str) -> None:
    """DESIGN section 5: above (E, B), below this epoch, of this topic, as far as Kafka has it."""
    undone = RollBack(5, newest, topic_id, earliest)
    found = DataFusion().ask(f"SELECT * FROM {{q}} WHERE {undone.condition}", q=At(quarantine))
    expected = {
        (epoch, batch, topic, partition, offset)
        for epoch, batch, topic, partition, offset in RECORDS
        if epoch < 5 and (epoch > newest.epoch or (epoch == newest.epoch and batch > newest.number))
        if topic == topic_id and offset >= earliest.get(partition, 9)
    }
    assert {tuple(row.values()) for row in found} == expected
    assert {each for each in RECORDS if undone.takes(BatchId(*each[:2]), *each[2:])} == expected


@pytest.mark.parametrize(
    ("newest", "whole_log", "due"),
    [
        (BatchId(3, 6), True, True),
        (BatchId(4, 2), True, True),
        (BatchId(3, 5), True, False),
        (BatchId(1, 9), True, False),
        (None, True, False),
        (None, False, True),  # nobody can tell: the DELETE looks
        (BatchId(3, 5), False, False),
    ],
)
def test_it_is_due_where_the_quarantine_is_ahead_of_the_target(newest: BatchId | None, whole_log: bool, due: bool) -> None:
    facts = replace(GOOD, quarantine=replace(GOOD.quarantine, newest=newest, whole_log=whole_log))
    undone = roll_back(facts, 5)
    assert undone == (RollBack(5, BatchId(3, 5), "id", EARLIEST) if due else None)


def test_where_nothing_was_ever_committed_all_goes() -> None:
    facts = replace(GOOD, target=replace(GOOD.target, newest=None), quarantine=QuarantineFacts("/q", newest=BatchId(1, 2)))
    assert roll_back(facts, 2) == RollBack(2, BatchId(0, 0), "id", EARLIEST)
