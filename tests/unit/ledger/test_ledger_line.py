"""A line of the ledger is a posting with its statement, and comes back from the table as it was (I4, I7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from ingest.delta.batch_commit import Batch, BatchCommit, BatchId, Upkeep
from ingest.delta.commit import Commit
from ingest.delta.posting import NOTHING, Posting
from ingest.delta.table_definitions import LEDGER_FIELDS
from ingest.kafka.topic_state import NO_TOPIC, TopicId
from ingest.ledger.ledger_line import DECIMALS, POSTING, lines_of
from tests.unit.delta.test_posting import postings

ORDERS, RETURNS = TopicId("orders", "id", "cluster"), TopicId("returns", "another", "cluster")
COMMIT = Commit(3, datetime(2025, 1, 2, tzinfo=UTC), "MERGE", {}, None)
BATCH = BatchCommit(Batch(), "shop", "orders", BatchId(4, 5), "w", None, "hash", (ORDERS, RETURNS))


@given(st.lists(postings, max_size=4))
def test_each_posting_of_a_commit_is_a_line_with_its_statement(found: list[Posting]) -> None:
    lines = list(lines_of("target", COMMIT, replace(BATCH, postings=tuple(found))))
    assert [line.posting for line in lines] == found
    for line in lines:
        assert (line.id, line.writer, line.version, line.of_table, line.contract_hash) == (BatchId(4, 5), "w", 3, "target", "hash")
        topic = {0: TopicId("orders", "id"), 1: TopicId("returns", "another")}.get(line.posting.key.source, NO_TOPIC)
        assert line.of(line.row()) == line and line.topic == topic, "without the cluster"


def test_a_line_has_the_columns_of_the_table_in_any_order_and_sums_are_decimals() -> None:
    """A sum of offsets has more digits than a BIGINT."""
    posting = Posting.of_fields("batch", [4, 5, 0, 1, 0, 9, 7, 9, 0, 0, 9, 2**70, 2**64 - 1, *[0] * 3])
    (line,) = lines_of("quarantine", COMMIT, replace(BATCH, postings=(posting,)))
    assert sorted(line.row()) == sorted(field.name for field in LEDGER_FIELDS) and set(POSTING) < set(line.row())
    assert [field.name for field in LEDGER_FIELDS if field.dataType.typeName() == "decimal"] == list(DECIMALS)
    again = line.of(line.row()).posting.range
    assert again is not None and again.leader_epoch == 7
    assert line.of(line.row()).posting.target == replace(NOTHING, rows=9, offsets=2**70, hash=2**64 - 1)


def test_a_line_is_about_the_topic_of_its_posting_and_that_of_an_upkeep_about_none() -> None:
    found = tuple(Posting.of_fields("batch", [4, 5, source, 1, 0, 9, None, 9, 9, 0, *[0] * 6]) for source in (0, 1))
    rows = [line.row() for line in lines_of("target", COMMIT, replace(BATCH, postings=found))]
    assert [(row["source"], row["topic"], row["topic_id"]) for row in rows] == [(0, "orders", "id"), (1, "returns", "another")]
    (upkeep,) = lines_of("target", COMMIT, BatchCommit(Upkeep(), "shop", "orders", postings=found[1:]))
    assert (upkeep.row()["source"], upkeep.topic) == (1, NO_TOPIC)


def test_a_rebuild_is_about_the_rows_of_all_its_epochs() -> None:
    rebuild, batch = (Posting.of_fields(why, [2, 0, 0, 1, 0, 9, None, 9, 0, 0, *[0] * 6]) for why in ("rebuild", "batch"))
    lines = lines_of("target", COMMIT, replace(BATCH, postings=(rebuild, batch)))
    assert [line.epochs for line in lines] == [range(2, 4), range(2, 3)]
