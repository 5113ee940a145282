"""BatchCommit as JSON and back: what each statement is, whose, and its postings. Foreign metadata is never mistaken for ours (I1)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.delta.batch_commit import (
    EPOCH_BITS,
    FENCED,
    Alter,
    Batch,
    BatchCommit,
    BatchId,
    Case,
    Check,
    Create,
    Fence,
    Mark,
    Project,
    Replay,
    RollBack,
    Seek,
    Snapshot,
    Snapshots,
    Start,
    State,
    Swap,
    Upkeep,
)
from ingest.delta.commit import Commit
from ingest.delta.posting import Key, Posting, Sums
from ingest.kafka.offsets import OffsetRange, Position
from ingest.kafka.topic_state import NO_TOPIC, TopicId

SNAPSHOTS = Snapshots(Snapshot("T", 4, "t4"), Snapshot("Q", 2, "q2"))
TOPIC = TopicId("orders", "topic-id", "cluster")
RETURNS = TopicId("returns", "", "cluster")
EMPTY = [0, 0, 0]


def posting(why: Any, partition: int, *at: int, number: int = 7, **more: Any) -> Posting:
    return Posting(Key(3, number, 0, partition), why, OffsetRange(partition, *at) if at else None, **more)


READ = posting("batch", 0, 5, 9, read=3, target=Sums(1, 5, 77), quarantine=Sums(1, 6, 88), present=1)
OPEN = posting("batch", 10, 0, 2**62, read=9, target=None, present=None, duplicate=2)
OTHER = Posting(Key(3, 7, 1, 0), "batch", OffsetRange(0, 2, 4, 8, 1), 2, present=2)
BATCH = BatchCommit(Batch(), "shop", "orders", BatchId(3, 7), "w", SNAPSHOTS, "h", (TOPIC,), (READ, OPEN))
SAID = posting("batch", 0, number=6, target=Sums(4, 10, 99), present=1)
GAPS = (posting("gap", 0, 1, 2, number=1), posting("gap", 0, 3, 5, number=1))
LOST = Posting(Key(2, 3, 0, 0), "write-off", target=Sums(-1, -3, 55))


def of(case: Case, number: int, *postings: Posting) -> BatchCommit:
    return replace(BATCH, case=case, id=BatchId(3, number), postings=postings)


HEAD: dict[str, Any] = {"oncelake": 3, "pipeline": "shop", "table": "orders", "epoch": 3, "writer": "w"}
HEAD["snapshots"] = {"target": {"table_id": "T", "version": 4, "stamp": "t4"}, "quarantine": {"table_id": "Q", "version": 2, "stamp": "q2"}}
HEAD |= {"contract_hash": "h", "sources": [["orders", "topic-id", "cluster"]]}
BARE: dict[str, Any] = {"oncelake": 3, "pipeline": "shop", "table": "orders", "epoch": 0, "batch": 0, "writer": ""}
STARTS = [3, 1, 0, 0, 5, 5, None, 0, 0, 0, *EMPTY, *EMPTY]
# The documented JSON of each case (docs/reference/commit.md).
DOCUMENTED: list[tuple[BatchCommit, dict[str, Any]]] = [
    (BatchCommit(Create(), "shop", "orders", contract_hash="h"), BARE | {"kind": "create", "contract_hash": "h"}),
    (BatchCommit(Alter(), "shop", "orders", contract_hash="h"), BARE | {"kind": "alter", "contract_hash": "h"}),
    (of(Fence(), 0), HEAD | {"kind": "fence", "batch": 0}),
    (
        of(Start("starting_offsets: earliest"), 1, posting("first", 0, 5, 5, number=1)),
        HEAD | {"kind": "start", "batch": 1, "reason": "starting_offsets: earliest", "postings": {"first": [STARTS]}},
    ),
    (
        of(Seek("--to 0:5"), 1, posting("seek", 0, 5, 5, number=1), *GAPS, LOST),
        HEAD
        | {"kind": "seek", "batch": 1, "reason": "--to 0:5"}
        | {
            "postings": {
                "seek": [STARTS],
                "gap": [[3, 1, 0, 0, 1, 2, None, 0, 0, 0, *EMPTY, *EMPTY], [3, 1, 0, 0, 3, 5, None, 0, 0, 0, *EMPTY, *EMPTY]],
                "write-off": [[2, 3, 0, 0, None, None, None, 0, 0, 0, -1, -3, 55, *EMPTY]],
            }
        },
    ),
    (
        replace(BATCH, postings=(SAID, READ, OPEN)),
        HEAD
        | {"kind": "batch", "batch": 7}
        | {
            "postings": {
                "batch": [
                    [3, 6, 0, 0, None, None, None, 0, 1, 0, 4, 10, 99, *EMPTY],
                    [3, 7, 0, 0, 5, 9, None, 3, 1, 0, 1, 5, 77, 1, 6, 88],
                    [3, 7, 0, 10, 0, 2**62, None, 9, None, 2, None, None, None, *EMPTY],
                ]
            }
        },
    ),
    (
        replace(BATCH, sources=(TOPIC, RETURNS), postings=(READ, OTHER)),
        HEAD
        | {"kind": "batch", "batch": 7, "sources": [["orders", "topic-id", "cluster"], ["returns", "", "cluster"]]}
        | {"postings": {"batch": [[3, 7, 0, 0, 5, 9, None, 3, 1, 0, 1, 5, 77, 1, 6, 88], [3, 7, 1, 0, 2, 4, 8, 2, 2, 0, *EMPTY, *EMPTY]]}},
    ),
    (of(RollBack(), 1), HEAD | {"kind": "rollback", "batch": 1}),
    (
        of(Replay("ada"), 1, posting("start", 0, 5, 5, number=1), posting("replay", 0, 2, 4, number=1, read=1, target=Sums(1, 3, 4))),
        HEAD
        | {"kind": "replay", "batch": 1, "reason": "ada"}
        | {"postings": {"start": [STARTS], "replay": [[3, 1, 0, 0, 2, 4, None, 1, 0, 0, 1, 3, 4, *EMPTY]]}},
    ),
    (
        of(Swap(2, "ingest rebuild --swap"), 1, posting("start", 0, 5, 5, number=1), Posting(Key(2, 0, 0, 0), "rebuild", read=0)),
        HEAD
        | {"kind": "swap", "batch": 1, "first": 2, "reason": "ingest rebuild --swap"}
        | {"postings": {"start": [STARTS], "rebuild": [[2, 0, 0, 0, None, None, None, 0, 0, 0, *EMPTY, *EMPTY]]}},
    ),
    (of(State(), 8, SAID), HEAD | {"kind": "state", "batch": 8, "postings": {"batch": [SAID.fields()]}}),
    (of(Mark(), 7), HEAD | {"kind": "mark", "batch": 7}),
    (
        BatchCommit(Project(), "shop", "orders", snapshots=SNAPSHOTS),
        BARE | {"kind": "project", "snapshots": HEAD["snapshots"]},
    ),
    (BatchCommit(Check(), "shop", "orders"), BARE | {"kind": "check"}),
    (
        BatchCommit(Upkeep("a court"), "shop", "orders", writer="u", postings=(replace(LOST, why="erasure"),)),
        BARE
        | {"kind": "upkeep", "writer": "u", "reason": "a court"}
        | {"postings": {"erasure": [[2, 3, 0, 0, None, None, None, 0, 0, 0, -1, -3, 55, *EMPTY]]}},
    ),
]
ALL = [batch_commit for batch_commit, _ in DOCUMENTED]


@pytest.mark.parametrize(("batch_commit", "document"), DOCUMENTED, ids=lambda each: getattr(each, "kind", ""))
def test_the_json_is_as_documented_and_is_parsed_back(batch_commit: BatchCommit, document: dict[str, Any]) -> None:
    assert json.loads(batch_commit.to_json()) == document
    assert BatchCommit.from_json(batch_commit.to_json()) == batch_commit


def test_every_case_is_documented() -> None:
    assert {type(each.case) for each in ALL} == {*get_args(Case)}


def changed(batch_commit: BatchCommit = BATCH, **fields: object) -> str:
    return json.dumps({**json.loads(batch_commit.to_json()), **fields})


OTHERS = [None, "", "a user's note", "{}", "[]", "1", "null", '{"oncelake":3}', BATCH.to_json()[:-1], '{"a":' * 100_000]
# Metadata of a former format, and of a later one.
OTHERS += ['{"oncelake":1,"kind":"batch","pipeline":"shop","table":"orders","epoch":3,"batch":7,"writer":"w","ranges":{"0":[5,9]}}']
OTHERS += [changed(oncelake=2), changed(oncelake=4), changed(kind="rebase"), changed(kind="Batch"), changed(kind=None), changed(kind=[])]
OTHERS += [changed(batch=-1), changed(batch=None), changed(batch="7"), changed(batch=2**32), changed(epoch=-1), changed(epoch=1.5)]
OTHERS += [changed(snapshots={}), changed(snapshots={"target": {}}), changed(snapshots=[1])]
OTHERS += [changed(sources=1), changed(sources=[["orders"]]), changed(sources=[["orders", "id", "c", "more"]]), changed(sources=[1])]
OTHERS += [changed(postings=[]), changed(postings={"x": []} | {"no reason": [READ.fields()]}), changed(postings={"batch": [[1]]})]
OTHERS += [changed(postings={"batch": [[*READ.fields()[:5], 4, *READ.fields()[6:]]]}), changed(postings={"batch": 1})]
OTHERS += [json.dumps({name: value for name, value in json.loads(of(Seek("x"), 1).to_json()).items() if name != "reason"})]
OTHERS += [json.dumps({name: value for name, value in json.loads(BATCH.to_json()).items() if name != "writer"})]


@pytest.mark.parametrize("text", OTHERS, ids=lambda text: str(text)[-60:])
def test_other_metadata_is_not_a_batch_commit(text: str | None) -> None:
    """I1: a commit is ours only if its metadata is complete and valid."""
    assert BatchCommit.from_json(text) is None


@pytest.mark.parametrize("batch_commit", ALL, ids=lambda batch_commit: batch_commit.kind)
def test_a_statement_that_must_happen_once_is_ours_only_with_its_transaction_id(batch_commit: BatchCommit) -> None:
    """I1: another engine may take over our metadata for a commit of its own."""

    def read(transactions: dict[str, int]) -> BatchCommit | None:
        return Commit(1, datetime(2025, 1, 2, tzinfo=UTC), "MERGE", transactions, batch_commit.to_json()).batch_commit

    app, version = "oncelake/shop/orders", batch_commit.id.txn_version
    assert read({app: version}) == batch_commit
    for transactions in ({}, {app: version + 1}, {"oncelake/shop/other": version}):
        assert read(transactions) == (None if isinstance(batch_commit.case, FENCED) else batch_commit)
    fenced = {"fence", "start", "seek", "batch", "rollback", "replay", "swap", "state"}
    assert isinstance(batch_commit.case, FENCED) == (batch_commit.kind in fenced)


ids = st.builds(BatchId, st.integers(0, 2**31 - 1), st.integers(0, 2**EPOCH_BITS - 1))


@given(ids, ids)
def test_transaction_ids_are_ordered_like_epoch_and_number_and_fit_into_a_delta_long(one: BatchId, other: BatchId) -> None:
    """I8"""
    assert (one < other) == (one.txn_version < other.txn_version)
    assert BatchId.of(one.txn_version) == one and 0 <= one.txn_version < 2**63


@pytest.mark.parametrize("values", [(-1, 0), (0, -1), (0, 2**32)])
def test_a_batch_id_refuses_values_out_of_range(values: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="not a batch id"):
        BatchId(*values)


def by_kind(kind: str) -> BatchCommit:
    return next(each for each in ALL if each.kind == kind)


def test_offsets_to_continue_at_come_from_the_postings_of_the_statements_own_epoch() -> None:
    """I2: not from gaps, nor from what it says of an earlier batch."""
    assert by_kind("batch").ends == {(0, 0): 9, (0, 10): 2**62} and [str(each) for each in BATCH.ranges] == ["0:[5,9)", f"10:[0,{2**62})"]
    assert [by_kind(kind).ends for kind in ("start", "seek", "replay", "swap")] == [{(0, 0): 5}] * 4
    assert [by_kind(kind).ends for kind in ("fence", "rollback", "state", "upkeep", "create")] == [{}] * 5
    assert BATCH.app_id == "oncelake/shop/orders" and BATCH.name == "shop.orders"


def test_what_a_later_commit_has_to_say_and_where_the_added_rows_are() -> None:
    assert by_kind("batch").opened == (OPEN,)
    assert [str(each) for each in by_kind("batch").positions] == ["0:[5,9)", f"10:[0,{2**62})"]
    assert [str(each) for each in by_kind("replay").positions] == ["0:[2,4)"] and by_kind("seek").positions == ()


def test_offsets_of_several_topics_are_those_of_their_partitions_and_a_topic_has_its_number() -> None:
    """I6: partition 0 of one topic is not partition 0 of another."""
    both = replace(BATCH, sources=(TOPIC, RETURNS), postings=(READ, OTHER))
    assert both.ends == {(0, 0): 9, (1, 0): 4} and both.read_to == {(1, 0): Position(4, 8)}
    assert [str(each) for each in both.positions] == ["0:[5,9)", "1/0:[2,4)"]
    assert (both.topic(0), both.topic(1), BatchCommit(Upkeep(), "shop", "orders").topic(0)) == (TOPIC, RETURNS, NO_TOPIC)
