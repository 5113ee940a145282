"""The decision of a start: each clause of each row of the table in docs/reference/errors.md, and which refusal comes first (I2, I6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ingest.delta.batch_commit import FENCE, SEEK, BatchId, Snapshot, Snapshots
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.ledger_reader import LedgerState, Newest
from ingest.recovery.decision import Create, Refuse, Start, decide, refusals_of
from ingest.recovery.start_state import CheckpointState, QuarantineState, Replaced, RowCount, StartState, TargetState

TOPIC = TopicId("orders", "id", "cluster")
SNAPSHOTS = Snapshots(Snapshot("T", 8, "t8"), Snapshot("Q", 4, "q4"))
NEWEST = Newest(BatchId(3, 5), (TOPIC,), {(0, 0): 20, (0, 1): 7}, SNAPSHOTS, 9)
TARGET = TargetState("/target", Snapshot("T", 9, "t9"), NEWEST.id, NEWEST)
QUARANTINE = QuarantineState("/quarantine", Snapshot("Q", 4, "q4"), 3, BatchId(3, 5))
LEDGER = LedgerState(replace(NEWEST, id=BatchId(3, 4), snapshots=None), BatchId(3, 4), table_id="T")
BROKER = TopicState(TOPIC, {0: (0, 25), 1: (3, 7)})
GOOD = StartState("shop.orders", TARGET, QUARANTINE, LEDGER, CheckpointState(3, "T"), (BROKER,))

NO_TARGET, NO_QUARANTINE = TargetState("/target"), QuarantineState("/quarantine")
NOTHING = StartState("shop.orders", NO_TARGET, NO_QUARANTINE, broker=(BROKER,))
BLANK = TargetState("/target", Snapshot("T", 0, "t0"), blank=True)

Change = Callable[[StartState], StartState]


def target(**fields: Any) -> Change:
    return lambda state: replace(state, target=replace(state.target, **fields))


def quarantine(**fields: Any) -> Change:
    return lambda state: replace(state, quarantine=replace(state.quarantine, **fields))


def newest(**fields: Any) -> Change:
    return lambda state: replace(state, target=replace(state.target, newest=replace(NEWEST, **fields)))


def ledger(**fields: Any) -> Change:
    return lambda state: replace(state, ledger=replace(state.ledger, **fields))


def checkpoint(epoch: int, table_id: str = "T") -> Change:
    return lambda state: replace(state, checkpoint=CheckpointState(epoch, table_id))


def broker(topic: TopicId = TOPIC, decided: dict[int, int] | None = None, **bounds: tuple[int, int]) -> Change:
    known = {int(name[1:]): bound for name, bound in bounds.items()}
    return lambda state: replace(state, broker=(TopicState(topic, {**BROKER.bounds, **known}, decided or {}),))


def all_of(*changes: Change) -> Change:
    def change(state: StartState) -> StartState:
        for each in changes:
            state = each(state)
        return state

    return change


def code(state: StartState) -> str:
    decision = decide(state)
    return decision.error.code if isinstance(decision, Refuse) else type(decision).__name__


REPLACED = Replaced(10, "RESTORE")
ONLY_LEDGER = newest(snapshots=None)
CASES: dict[str, tuple[Change, str]] = {
    "unchanged since the last run": (lambda state: state, "Start"),
    "no checkpoints at all": (checkpoint(0, ""), "Start"),
    "an older checkpoint of the same table": (checkpoint(1), "Start"),
    "a checkpoint without a table id": (checkpoint(3, ""), "Start"),
    "no ledger": (lambda state: replace(state, ledger=LedgerState()), "Start"),
    "a fence of a start that was cut off": (target(txn=BatchId(4, FENCE)), "Start"),
    "a fence on both tables": (all_of(target(txn=BatchId(4, FENCE)), quarantine(epoch=4)), "Start"),
    "an uncommitted batch in the quarantine": (quarantine(newest=BatchId(3, 6)), "Start"),
    "the newest commit is a seek": (all_of(newest(id=BatchId(3, SEEK)), target(txn=BatchId(3, SEEK)), ledger(newest=None)), "Start"),
    # TABLE_REPLACED
    "no table, but the ledger knows it": (target(snapshot=None), "TABLE_REPLACED"),
    "a table id that differs from the ledger's": (target(snapshot=Snapshot("X", 9, "t9")), "TABLE_REPLACED"),
    "a table id that differs from the checkpoint's": (all_of(checkpoint(4, "X"), target(txn=BatchId(4, FENCE))), "TABLE_REPLACED"),
    "an older checkpoint of another table": (checkpoint(2, "X"), "Start"),
    # TABLE_FOREIGN
    "commits of another pipeline": (target(other="lab.orders"), "TABLE_FOREIGN"),
    "no commit by this pipeline": (all_of(target(txn=None, newest=None), lambda f: replace(f, ledger=LedgerState())), "TABLE_FOREIGN"),
    "only the ledger knows the table": (all_of(target(txn=None), newest(snapshots=None)), "TABLE_FOREIGN"),
    # TABLE_REWOUND
    "replaced since the newest snapshot": (target(replaced=REPLACED), "TABLE_REWOUND"),
    "restored from a copy": (target(copy="its version 8 is missing"), "TABLE_REWOUND"),
    "no batch, but the quarantine has one": (
        all_of(target(txn=BatchId(4, FENCE), newest=None), checkpoint(0, ""), lambda f: replace(f, ledger=LedgerState())),
        "TABLE_REWOUND",
    ),
    "replaced, then fenced": (target(replaced=REPLACED, txn=BatchId(4, FENCE)), "TABLE_REWOUND"),
    "the ledger knows a later epoch": (ledger(statement=BatchId(4, 1)), "TABLE_REWOUND"),
    "the checkpoints know a later epoch": (checkpoint(4), "TABLE_REWOUND"),
    "the quarantine knows a later epoch": (quarantine(epoch=4), "TABLE_REWOUND"),
    "the ledger knows a later batch": (ledger(newest=replace(NEWEST, id=BatchId(3, 6))), "TABLE_REWOUND"),
    "the ledger knows the same batch": (ledger(newest=NEWEST), "Start"),
    "only the ledger has the batches, and rows are missing": (
        all_of(ONLY_LEDGER, lambda f: replace(f, count=RowCount(("batch 3/5: 2",)))),
        "TABLE_REWOUND",
    ),
    "only the ledger has the batches, and no row is missing": (all_of(ONLY_LEDGER, lambda f: replace(f, count=RowCount())), "Start"),
    # QUARANTINE_REWOUND
    "no quarantine": (lambda f: replace(f, quarantine=NO_QUARANTINE), "QUARANTINE_REWOUND"),
    "no quarantine, and only the ledger has the batches": (
        all_of(ONLY_LEDGER, lambda f: replace(f, quarantine=NO_QUARANTINE)),
        "QUARANTINE_REWOUND",
    ),
    "a copy of the quarantine": (quarantine(copy="its version 4 is missing"), "QUARANTINE_REWOUND"),
    "a RESTORE of the quarantine": (quarantine(replaced=REPLACED), "QUARANTINE_REWOUND"),
    "the quarantine's epoch is lower": (quarantine(epoch=2), "QUARANTINE_REWOUND"),
    "the quarantine's epoch is lower because the start was cut off": (target(txn=BatchId(4, FENCE)), "Start"),
    # HISTORY_GONE
    "a batch that neither log nor ledger has": (target(txn=BatchId(3, 6)), "HISTORY_GONE"),
    "a seek that neither log nor ledger has": (target(txn=BatchId(4, SEEK)), "HISTORY_GONE"),
    "a fence, without log or ledger": (
        all_of(target(txn=BatchId(4, FENCE), newest=None, whole_log=False), lambda f: replace(f, ledger=LedgerState())),
        "HISTORY_GONE",
    ),
    "rows of unknown batches, and only the ledger has the batches": (
        all_of(ONLY_LEDGER, lambda f: replace(f, count=RowCount((), ("batch 2/9",)))),
        "HISTORY_GONE",
    ),
    # TXN_RETENTION
    "transaction ids expire": (lambda f: replace(f, retention=("/target",)), "TXN_RETENTION"),
    # Codes that depend on the broker
    "another topic in the contract": (broker(TopicId("payments", "id")), "TOPIC_CHANGED"),
    "the topic was recreated": (broker(TopicId("orders", "new", "cluster")), "TOPIC_RECREATED"),
    "another cluster with topic ids": (broker(TopicId("orders", "id", "other")), "Start"),
    "another cluster without topic ids": (broker(TopicId("orders", "", "other")), "TOPIC_RECREATED"),
    "a partition is gone": (lambda f: replace(f, broker=(TopicState(TOPIC, {0: (0, 25)}),)), "PARTITIONS_LOST"),
    "the next offset expired": (broker(p0=(21, 25)), "RECORDS_EXPIRED"),
    "all records before the next offset expired": (broker(p0=(20, 25)), "Start"),
    "an added partition whose first records expired": (broker(p2=(1, 5)), "RECORDS_EXPIRED"),
    "the topic ends before the table's end offset": (broker(p0=(0, 19)), "BROKER_BEHIND"),
    "the topic ends at the table's end offset": (broker(p0=(0, 20)), "Start"),
    "the topic lost records that were read": (lambda f: replace(f, taken_back={(0, 0): (15, 20)}), "LOG_TRUNCATED"),
    "it lost them, and still ends before the table's end offset": (
        all_of(broker(p0=(0, 19)), lambda f: replace(f, taken_back={(0, 0): (15, 20)})),
        "BROKER_BEHIND",
    ),
    "an open transaction starts before the table's end offset": (broker(decided={0: 19, 1: 7}), "OFFSETS_UNDECIDED"),
    "an open transaction starts at the table's end offset": (broker(decided={0: 20, 1: 7}), "Start"),
    "the broker was not asked": (lambda f: replace(f, broker=None), "Start"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_start_decides_from_its_state(case: str) -> None:
    change, expected = CASES[case]
    assert code(change(GOOD)) == expected


def test_the_first_refusal_in_the_order_of_the_table_is_reported() -> None:
    """The changes add up, from the last row of the table to the first. Each one changes which refusal is reported."""
    rows: list[tuple[Change, str]] = [
        (lambda f: replace(f, taken_back={(0, 1): (5, 7)}), "LOG_TRUNCATED"),
        (broker(p0=(0, 1)), "BROKER_BEHIND"),
        (broker(p0=(0, 1), p1=(9, 9)), "RECORDS_EXPIRED"),
        (broker(TopicId("orders", "new", "cluster")), "TOPIC_RECREATED"),
        (target(txn=BatchId(3, 6)), "HISTORY_GONE"),
        (quarantine(replaced=REPLACED), "QUARANTINE_REWOUND"),
        (target(replaced=REPLACED), "TABLE_REWOUND"),
        (ledger(table_id="X"), "TABLE_REPLACED"),
        (target(other="lab.orders"), "TABLE_FOREIGN"),
        (lambda f: replace(f, retention=("/target",)), "TXN_RETENTION"),
    ]
    state = GOOD
    for change, expected in rows:
        state = change(state)
        assert code(state) == expected
    assert [each.code for each in refusals_of(state)] == [expected for _, expected in reversed(rows[3:])]


def test_missing_tables_are_created_only_if_nothing_knows_of_a_former_table() -> None:
    assert decide(NOTHING) == Create()
    assert code(quarantine(snapshot=Snapshot("Q", 0, "q0"))(NOTHING)) == "Create", "a first start was cut off here"
    for change in (ledger(statement=BatchId(1, 1)), checkpoint(1), quarantine(epoch=1)):
        assert code(change(NOTHING)) == "TABLE_REPLACED"


@pytest.mark.parametrize(("txn", "epoch"), [(None, 0), (BatchId(2, FENCE), 1), (BatchId(2, FENCE), 2)])
def test_a_blank_table_starts_at_the_contracts_starting_offsets(txn: BatchId | None, epoch: int) -> None:
    """I2: a first start may be cut off after either of its fences."""
    state = replace(NOTHING, target=replace(BLANK, txn=txn), quarantine=replace(QUARANTINE, epoch=epoch, newest=None))
    state = broker(decided={0: 24, 1: 7})(state)
    assert decide(state, "earliest") == Start({(0, 0): 0, (0, 1): 3}, first=True)
    assert decide(state, "latest") == Start({(0, 0): 24, (0, 1): 7}, first=True)
    assert decide(replace(state, broker=None), "latest") == Start({}, first=True)


def test_a_start_continues_at_the_tables_end_offsets_and_reads_a_new_partition_from_0() -> None:
    """I2"""
    assert decide(broker(p2=(0, 9))(GOOD), "latest") == Start({(0, 0): 20, (0, 1): 7, (0, 2): 0})


def test_a_refusal_names_the_exact_offset_ranges() -> None:
    refused = list(refusals_of(broker(p0=(22, 25), p1=(0, 5))(GOOD)))
    assert "partition 0 [20, 22): 2 offsets" in refused[0].found
    assert "partition 1 ends at 5, but shop.orders continues at 7" in refused[1].found


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (("id", "c"), ("id", "c"), "Start"),
        (("id", "c"), ("", "c"), "Start"),  # the brokers were upgraded
        (("", "c"), ("id", "c"), "Start"),
        (("", "c"), ("", ""), "Start"),
        (("", ""), ("", ""), "Start"),
        (("id", ""), ("", ""), "Start"),
        (("", ""), ("id", ""), "TOPIC_RECREATED"),
        (("", "c"), ("id", ""), "TOPIC_RECREATED"),  # from the ledger, which does not store the cluster
        (("", "c"), ("", "d"), "TOPIC_RECREATED"),
        (("new", "c"), ("id", "c"), "TOPIC_RECREATED"),
    ],
)
def test_topics_are_compared_by_id_or_by_cluster_if_an_id_is_missing(now: tuple[str, str], before: tuple[str, str], expected: str) -> None:
    state = newest(sources=(TopicId("orders", *before),))(GOOD)
    assert code(broker(TopicId("orders", *now))(state)) == expected
