"""Records that the quarantine lacks where several checkpoints have read the same offsets, on a table that deltalake wrote (I4, I5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from ingest.delta_sql import At, DataFusion
from ingest.prove.balance import segments
from ingest.prove.count import QUARANTINE_POSITION, Rows
from ingest.prove.quarantined import lacking
from ingest.stream.ledger_row import LedgerRow
from tests.unit.test_balance import row

# (query id, batch, offset)
Record = tuple[str, int, int]
FIRST: tuple[Record, ...] = (("q1", 0, 1), ("q1", 0, 2), ("q1", 1, 12))
SECOND: tuple[Record, ...] = (("q2", 1, 25), ("q2", 1, 26), ("q2", 1, 27))


def quarantine(folder: Path, records: Sequence[Record]) -> Rows:
    columns = {
        "topic_id": pa.array(["id"] * len(records), pa.string()),
        "partition": pa.array([0] * len(records), pa.int32()),
        "offset": pa.array([offset for _, _, offset in records], pa.int64()),
        "query_id": pa.array([query for query, _, _ in records], pa.string()),
        "batch_id": pa.array([batch for _, batch, _ in records], pa.int64()),
    }
    write_deltalake(str(folder), pa.table(columns))
    return Rows(At(str(folder)), QUARANTINE_POSITION)


def batch(number: int, start: int, end: int, quarantined: int, query: str = "q1") -> LedgerRow:
    return row(number, start, end, quarantined=quarantined, query_id=query, epoch=0 if query == "q1" else 1)


# q2 reads again what q1 has read, and ten offsets more, in one batch.
LEDGER = (batch(0, 0, 10, 2), batch(1, 10, 20, 1), batch(1, 0, 30, 3, "q2"))


def lost(folder: Path, records: Sequence[Record], ledger: Sequence[LedgerRow] = LEDGER) -> set[tuple[int | None, int | None, str]]:
    found = list(lacking(DataFusion(), quarantine(folder, records), segments(ledger)))
    assert {each.code for each in found} <= {"QUARANTINE_DIFFERS"}
    return {(each.batch_id, each.start_offset, each.what.rpartition("holds ")[2]) for each in found}


def test_a_whole_quarantine_lacks_nothing(tmp_path: Path) -> None:
    assert lost(tmp_path / "q", (*FIRST, *SECOND)) == set()


def test_what_one_checkpoint_lost_is_not_made_up_by_what_another_put_there_anew(tmp_path: Path) -> None:
    """Three records are left, as many as the second checkpoint alone has put there."""
    assert lost(tmp_path / "first", SECOND) == {(0, 0, "0"), (1, 10, "0")}
    assert lost(tmp_path / "one", (FIRST[0], FIRST[2], *SECOND)) == {(0, 0, "1")}
    assert lost(tmp_path / "second", (*FIRST, SECOND[0])) == {(1, 0, "1")}


def test_what_a_later_checkpoint_has_put_there_again_is_not_lacking(tmp_path: Path) -> None:
    """The quarantine was restored, and a rebase read the stretch again."""
    again = [("q2", 1, offset) for _, _, offset in FIRST]
    ledger = (*LEDGER[:2], batch(1, 0, 30, 6, "q2"))
    assert lost(tmp_path / "all", (*again, *SECOND), ledger) == set()
    assert lost(tmp_path / "less", (*again[1:], *SECOND), ledger) == {(0, 0, "1"), (1, 0, "5")}


def test_where_one_checkpoint_has_read_nothing_is_asked(tmp_path: Path) -> None:
    """The sum of the range tells: the table is not even looked at."""
    alone = [replace(each, query_id="q1") for each in LEDGER[:2]]
    assert list(lacking(DataFusion(), Rows(At(str(tmp_path / "none")), QUARANTINE_POSITION), segments(alone))) == []


def test_the_condition_of_the_records_holds_here_too(tmp_path: Path) -> None:
    """What a batch that was cut off has left there is nobody's yet."""
    records = quarantine(tmp_path / "q", (*FIRST, *SECOND, ("q2", 2, 1)))
    there = replace(records, where="(query_id = 'q1' AND batch_id <= 1) OR (query_id = 'q2' AND batch_id <= 1)")
    assert list(lacking(DataFusion(), there, segments(LEDGER))) == []
    DeltaTable(records.table.path).delete("offset = 2")
    assert [each.batch_id for each in lacking(DataFusion(), there, segments(LEDGER))] == [0]
