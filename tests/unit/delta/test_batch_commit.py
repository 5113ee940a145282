"""BatchCommit as JSON and back: identity, ranges and counts. Foreign metadata is never mistaken for ours (I1)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.delta.batch_commit import EPOCH_BITS, BatchCommit, BatchId, Counts, Snapshot, Snapshots
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId

SNAPSHOTS = Snapshots(Snapshot("T", 4, "t4"), Snapshot("Q", 2, "q2"))
TOPIC = TopicId("orders", "topic-id", "cluster")
FENCE = BatchCommit("epoch", "shop", "orders", BatchId(3, 0), "w", SNAPSHOTS)
BATCH = replace(FENCE, kind="batch", id=BatchId(3, 7), contract_hash="h", topic=TOPIC)
BATCH = replace(BATCH, ranges=(OffsetRange(0, 5, 9), OffsetRange(10, 0, 2**62)), counts=((0, Counts(4, 1, 1)), (10, Counts())))
SEEK = replace(BATCH, kind="seek", id=BatchId(3, 1), ranges=(OffsetRange(0, 5, 5),), counts=(), why="seek", reason="--to 0:5")
SEEK = replace(SEEK, gaps=(OffsetRange(0, 1, 2), OffsetRange(0, 3, 5)))

HEAD = {"oncelake": 1, "pipeline": "shop", "table": "orders", "epoch": 3, "writer": "w"}
HEAD["looked"] = {"target": {"table_id": "T", "version": 4, "stamp": "t4"}, "quarantine": {"table_id": "Q", "version": 2, "stamp": "q2"}}
OF_TOPIC = {"contract_hash": "h", "topic": "orders", "topic_id": "topic-id", "cluster": "cluster"}
DOCUMENTED = {
    FENCE: HEAD | {"kind": "epoch", "batch": 0},
    BATCH: HEAD
    | OF_TOPIC
    | {"kind": "batch", "batch": 7, "ranges": {"0": [5, 9], "10": [0, 2**62]}}
    | {
        "counts": {
            "0": {"read": 4, "quarantined": 1, "duplicate_in_batch": 1},
            "10": {"read": 0, "quarantined": 0, "duplicate_in_batch": 0},
        }
    },
    SEEK: HEAD
    | OF_TOPIC
    | {"kind": "seek", "batch": 1, "starts": {"0": 5}, "gaps": {"0": [[1, 2], [3, 5]]}, "why": "seek", "reason": "--to 0:5"},
}


@pytest.mark.parametrize("batch_commit", DOCUMENTED, ids=lambda batch_commit: batch_commit.kind)
def test_the_json_is_as_documented_and_is_parsed_back(batch_commit: BatchCommit) -> None:
    assert json.loads(batch_commit.to_json()) == DOCUMENTED[batch_commit]
    assert BatchCommit.from_json(batch_commit.to_json()) == batch_commit


def changed(batch_commit: BatchCommit = BATCH, **fields: object) -> str:
    return json.dumps({**json.loads(batch_commit.to_json()), **fields})


OTHERS = [None, "", "a user's note", "{}", "[]", "1", "null", '{"oncelake":1}', BATCH.to_json()[:-1]]
OTHERS += ['{"oncelake":1,"kind":"created","pipeline":"shop","table":"orders","contract_hash":"x"}', '{"a":' * 100_000]
OTHERS += [changed(oncelake=2), changed(kind="rebase"), changed(batch=-1), changed(batch=None), changed(batch="7"), changed(batch=2**32)]
OTHERS += [changed(epoch=-1), changed(epoch=1.5), changed(looked={}), changed(looked={"target": {}})]
OTHERS += [changed(ranges={"0": [9, 5]}), changed(ranges={"x": [0, 1]}), changed(ranges={"0": [1]}), changed(ranges=[])]
OTHERS += [changed(counts={"0": {"read": 1, "quarantined": 2, "duplicate_in_batch": 0}}), changed(counts={"0": {"unknown": 1}})]
OTHERS += [changed(SEEK, starts=None), changed(SEEK, gaps={"0": [[2, 1]]})]


@pytest.mark.parametrize("text", OTHERS, ids=lambda text: str(text)[-60:])
def test_other_metadata_is_not_a_batch_commit(text: str | None) -> None:
    """I1: a commit is ours only if its metadata is complete and valid."""
    assert BatchCommit.from_json(text) is None


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


@pytest.mark.parametrize("values", [(1, 2, 0), (1, 0, 2), (3, 2, 2), (-1, 0, 0), (1, -1, 0), (1, 0, -1)])
def test_counts_that_do_not_add_up_are_refused(values: tuple[int, int, int]) -> None:
    """I4"""
    with pytest.raises(ValueError, match="not counts"):
        Counts(*values)


def test_a_batch_and_a_seek_both_have_end_offsets_to_continue_at() -> None:
    """I2"""
    assert (BATCH.ends, SEEK.ends, FENCE.ends) == ({0: 9, 10: 2**62}, {0: 5}, {})
    assert BATCH.app_id == "oncelake/shop/orders" == FENCE.app_id
