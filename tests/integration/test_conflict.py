"""Conflicting duplicates (I3): if copies of an event id differ in payload, the first becomes the row and the others are quarantined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batch.conflicts import with_bytes
from ingest.batch.direct import _Batch
from ingest.recovery.seek_offsets import Aim, Seeking
from tests.integration.desk import Desk
from tests.integration.lane import Lane, Record, order

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
MakeLane = Callable[..., Lane]
COLUMNS = {"n": "INT", "note": "STRUCT<text: STRING, tags: MAP<STRING, ARRAY<INT>>>"}


def counts(desk: Desk) -> tuple[int, int, int]:
    """How many records of the newest batch were inserted, were there before, and were quarantined."""
    _, inserted, present, duplicate, quarantined, _ = desk.accounts()[-1]
    return inserted, present + duplicate, quarantined


@pytest.mark.slow
def test_in_a_batch_a_later_copy_with_another_payload_is_quarantined_with_its_bytes(lane: MakeLane) -> None:
    one = lane(COLUMNS)
    same = order("a", n=1, note={"text": "x", "tags": {"k": [1], "l": [2]}})
    other_order = order("a", note={"tags": {"l": [2], "k": [1]}, "text": "x"}, n=1)
    changed = order("a", n=1, note={"text": "x", "tags": {"k": [1], "l": [3]}})
    one.send(same, other_order, Record(changed, key=b"key"), same, order("b", n=None), order("b"), order("b", n=0))
    (report,) = one.run()
    assert (report.inserted, report.duplicate, report.quarantined) == (2, 3, 2)
    rows = one.quarantine().orderBy("offset").collect()
    assert [(r["offset"], r["reason_code"], r["event_id"], r["reason_detail"]) for r in rows] == [
        (2, "conflicting_duplicate", "a", "differs from partition 0 offset 0"),
        (6, "conflicting_duplicate", "b", "differs from partition 0 offset 4"),
    ]
    assert (bytes(rows[0]["value"]), bytes(rows[0]["key"])) == (changed.encode(), b"key")
    one.balanced()


@pytest.mark.slow
def test_with_conflicts_table_conflicts_are_found_across_batches_too(desk: MakeDesk) -> None:
    one = desk(COLUMNS, conflicts="table")
    one.batch(order("a", n=1), order("b", n=1))
    frame = one.frame(order("a", n=2), order("a", n=1), order("b", n=1), order("c", n=1), order("c", n=2))
    one.process(frame)
    assert counts(one) == (1, 2, 2)
    rows = one.quarantine()
    assert [(r["offset"], r["reason_code"], r["reason_detail"]) for r in rows] == [
        (2, "conflicting_duplicate", "differs from partition 0 offset 0"),
        (6, "conflicting_duplicate", "differs from partition 0 offset 5"),
    ]
    assert bytes(rows[0]["value"]) == order("a", n=2).encode()
    assert sorted(one.rows("id", "n")) == [("a", 1), ("b", 1), ("c", 1)]


@pytest.mark.slow
def test_on_a_re_read_no_row_conflicts_with_itself_and_no_conflict_is_found_twice(desk: MakeDesk) -> None:
    """I3: a record stored at its own position is the record itself, even if a changed contract gives it another payload."""
    one = desk({"n": "INT"}, conflicts="table")
    values = (order("a", n=1, m=1), order("b", n=1, m=1), order("a", n=2, m=1))
    one.batch(*values[:2])
    one.batch(values[2])
    rows, records = sorted(one.target().collect()), one.quarantine()
    columns = [*one.contract.columns, one.contract.columns[1].model_copy(update={"name": "m"})]
    one.contract = one.contract.model_copy(update={"columns": columns})
    one.session.sql(f"ALTER TABLE delta.`{one.places.target}` ADD COLUMN (m INT)").collect()
    one.table = one.open(Seeking(Aim("earliest"), accept_gap=False, reason="--to earliest"))
    one.batch(*values)
    assert counts(one) == (0, 3, 0)
    assert sorted(one.target().drop("m").select(*rows[0].asDict()).collect()) == rows and one.quarantine() == records


@pytest.mark.slow
def test_a_winner_that_conflicts_with_the_table_does_not_hide_its_later_copies(desk: MakeDesk) -> None:
    """If one batch contains a' before a, the payload in the table decides, not the order in the batch."""
    one = desk({"n": "INT"}, conflicts="table")
    one.batch(order("a", n=1))
    one.batch(order("a", n=2), order("a", n=1), order("a", n=3))
    assert counts(one) == (0, 1, 2)
    assert [row["offset"] for row in one.quarantine()] == [1, 3]
    assert one.rows("id", "n") == [("a", 1)]


def compacted(records: DataFrame) -> DataFrame:
    return records.where("offset <> 1")


def recreated(records: DataFrame) -> DataFrame:
    """The recreated topic has another record at this offset."""
    other = {"timestamp": F.timestamp_seconds(F.lit(0)), "value": F.lit(b"another topic's")}
    return records.withColumns({name: F.when(F.col("offset") == 1, value).otherwise(F.col(name)) for name, value in other.items()})


@pytest.mark.slow
@pytest.mark.parametrize("second_read", [compacted, recreated])
def test_a_conflict_whose_record_is_gone_at_the_second_read_is_kept_without_its_bytes(
    second_read: Callable[[DataFrame], DataFrame], desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5, I6: the raw bytes of a valid record need a second read. A record counted as quarantined is quarantined in any case."""

    def from_second_read(ranked: DataFrame, records: DataFrame, conflicts: int) -> DataFrame:
        return with_bytes(ranked, second_read(records), conflicts)

    conflicting = _Batch._conflicting

    def by_workers(batch: _Batch, staged: Any) -> Any:
        batch._records = second_read(batch._records)
        return conflicting(batch, staged)

    monkeypatch.setattr("ingest.batch.batch.with_bytes", from_second_read)
    monkeypatch.setattr(_Batch, "_conflicting", by_workers)
    one = desk({"n": "INT"})
    one.batch(order("a", n=1), order("a", n=2), order("a", n=3))
    assert counts(one) == (1, 0, 2)
    assert [(row["offset"], row["value"]) for row in one.quarantine()] == [(1, None), (2, order("a", n=3).encode())]


@pytest.mark.slow
def test_a_value_moved_to_another_column_is_a_different_payload(desk: MakeDesk) -> None:
    """NULL adds nothing to a hash: without column names in the hash, these payloads would be equal."""
    one = desk({"n": "INT", "m": "INT", "s": "STRUCT<x: INT, y: INT>"})
    one.batch(order("a", n=1), order("a", m=1), order("b", s={"x": 1}), order("b", s={"y": 1}), order("c", s={}), order("c"))
    assert counts(one) == (3, 0, 3)
