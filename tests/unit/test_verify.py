"""`ingest verify` on a lake that deltalake wrote, without Spark: two checkpoints that have read the same offsets (I4, I5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from ingest.contract import Contract
from ingest.delta_sql import DataFusion
from ingest.files import LocalFiles
from ingest.places import Places
from ingest.prove import taken
from ingest.prove.balance import Finding
from ingest.prove.verify import verify
from ingest.stream.binding import Binding, FormerEpoch, Rebase
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_row import LedgerRow, count_rows, project_rebase
from ingest.stream.mark import Counts, Mark, Statement
from ingest.stream.offsets import BatchId, OffsetRange
from tests.unit.test_balance import row

CONTRACT = Contract.model_validate(
    {
        "pipeline": "shop",
        "table": "orders",
        "source": {"topic": "orders", "format": "json"},
        "columns": [{"name": "id", "type": "BIGINT", "nullable": False}],
        "event_id": ["id"],
    }
)
AT = row(0, 0, 1).committed_at
FIRST = BatchId("q1", 0)
SECOND = BatchId("q2", 1)


class Lake:
    """Target, quarantine and ledger; every offset holds a record whose id is its offset."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(str(folder / "lake"), str(folder / "checkpoints"), "shop", "orders")
        self.ledger: list[LedgerRow] = []
        for write in (self.rows, self.records):
            write((), None)

    def batch(
        self, id: BatchId, epoch: int, start: int, end: int, rows: Sequence[int], poison: Sequence[int], losers: int = 0, gap: int = 0
    ) -> None:
        """A batch of [start, end) that adds these; what stands there already it counts as replayed."""
        read = end - start - gap
        counts = ((0, Counts(read, len(poison), losers, read - len(rows) - len(poison) - losers)),)
        mark = Mark("shop", "orders", id, epoch, "hash", "orders", "id", (OffsetRange(0, start, end),), counts)
        self.records(poison, mark)
        self.rows(rows, mark)
        log = DeltaLog(LocalFiles(), self.places.target)
        self.ledger += count_rows(None, self.places, log.commit(log.newest()), mark)

    def rebase(self, former: Sequence[tuple[str, int, int]], query: str, start: int) -> None:
        """A rebase to `start`; `former` are the query ids before it, the last batch of each and where that ended."""
        epochs = tuple(FormerEpoch(each, n, last, "orders", "id", ((0, end),) if end else ()) for n, (each, last, end) in enumerate(former))
        rebase = Rebase(epochs, ((0, start),), (), DeltaTable(self.places.target).version())
        binding = Binding("orders", "id", "", len(former), tuple(each for each, _, _ in former), rebase)
        self.ledger += project_rebase(binding, query, self.places, "hash", AT + timedelta(days=len(former)), {})

    def rows(self, offsets: Sequence[int], mark: Mark | None) -> None:
        columns = {"id": pa.array(offsets, pa.int64()), "_topic_id": pa.array(["id"] * len(offsets), pa.string())}
        self._write("target", {**columns, "_partition": pa.array([0] * len(offsets), pa.int32()), "_offset": columns["id"]}, mark)

    def records(self, offsets: Sequence[int], mark: Mark | None) -> None:
        batches = [-1 if mark is None else mark.id.number] * len(offsets)
        columns = {"topic_id": pa.array(["id"] * len(offsets), pa.string()), "partition": pa.array([0] * len(offsets), pa.int32())}
        columns |= {"offset": pa.array(offsets, pa.int64()), "state": pa.array(["open"] * len(offsets), pa.string())}
        columns |= {"query_id": pa.array([mark.id.query_id if mark else ""] * len(offsets), pa.string())}
        self._write("quarantine", {**columns, "batch_id": pa.array(batches, pa.int64())}, mark)

    def _write(self, table: Statement, columns: dict[str, pa.Array], mark: Mark | None) -> None:
        properties = None
        if mark is not None:
            pair = Transaction(mark.app_id(table), mark.id.number)
            properties = CommitProperties(custom_metadata={"userMetadata": mark.to_json()}, app_transactions=[pair])
        write_deltalake(f"{self.places.root}/{table}", pa.table(columns), mode="append", commit_properties=properties)

    def codes(self) -> list[str]:
        """What verify finds, with all that the ledger was told."""
        return [found.code for found in self.findings()]

    def findings(self) -> tuple[Finding, ...]:
        write_deltalake(self.places.ledger, pa.Table.from_pylist([asdict(each) for each in self.ledger]), mode="overwrite")
        return verify(DataFusion(), CONTRACT, self.places).findings


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The first checkpoint reads ten offsets; a rebase to the earliest reads them again, and ten more, in one batch."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(3, 10), range(3))
    rebase = Rebase((FormerEpoch("q1", 0, 0, "orders", "id", ((0, 10),)),), ((0, 0),), (), 1)
    one.ledger += project_rebase(Binding("orders", "id", "", 1, ("q1",), rebase), "q2", one.places, "hash", AT, {})
    one.batch(SECOND, 1, 0, 20, range(14, 20), range(10, 14))
    return one


def test_a_stretch_that_was_read_twice_balances(lake: Lake) -> None:
    assert lake.codes() == []


@pytest.mark.parametrize("gone", ["offset < 3", "offset = 1", "offset >= 10", "offset IN (0, 11)"])
def test_a_record_that_the_quarantine_lost_is_found_though_its_offsets_were_read_twice(lake: Lake, gone: str) -> None:
    """Of the first checkpoint's three and the second one's four, the sum of the stretch would not tell."""
    DeltaTable(lake.places.quarantine).delete(gone)
    assert set(lake.codes()) == {"RECORDS_MISSING"}


def test_a_record_that_stands_twice_excuses_none_that_is_lost(lake: Lake) -> None:
    """I4, I5: a DELETE in the quarantine that was taken back with the wrong record."""
    DeltaTable(lake.places.quarantine).delete("offset = 1")
    lake.records([2], Mark("shop", "orders", FIRST, 0, "hash", "orders", "id", (OffsetRange(0, 0, 10),), ()))
    assert set(lake.codes()) == {"ROW_TWICE", "RECORDS_MISSING"}


def test_a_row_that_was_lost_is_found_though_its_offsets_were_read_twice(lake: Lake) -> None:
    _take_behind_the_logs_back(lake, 5)
    assert set(lake.codes()) == {"RECORDS_MISSING"}


def _take_behind_the_logs_back(lake: Lake, gone: int) -> None:
    """An overwrite of a part, which is no DELETE."""
    rows = DeltaTable(lake.places.target).to_pyarrow_table()
    kept = rows.filter(pa.compute.not_equal(rows["_offset"], gone))
    write_deltalake(lake.places.target, kept, mode="overwrite", predicate="_offset >= 0")


def test_rows_that_were_lost_and_came_back_with_a_rebase_balance_again(read_once: Lake) -> None:
    """I4: nothing is missing any more, though both checkpoints have inserted them."""
    _take_behind_the_logs_back(read_once, 4)
    assert read_once.codes() == ["ROWS_DIFFER"]
    version = DeltaTable(read_once.places.target).version()
    rebase = Rebase((FormerEpoch("q1", 0, 0, "orders", "id", ((0, 10),)),), ((0, 0),), (), version)
    read_once.ledger += project_rebase(Binding("orders", "id", "", 1, ("q1",), rebase), "q2", read_once.places, "hash", AT, {})
    read_once.batch(SECOND, 1, 0, 6, (4,), ())
    assert read_once.codes() == []
    read_once.batch(BatchId("q2", 2), 1, 6, 12, (10, 11), ())
    assert read_once.codes() == []
    DeltaTable(read_once.places.target).delete("_offset IN (4, 8)")
    assert read_once.codes() == []
    for gone in (5, 11):
        _take_behind_the_logs_back(read_once, gone)
        assert set(read_once.codes()) == {"RECORDS_MISSING"}


@pytest.fixture
def behind(tmp_path: Path) -> Lake:
    """A batch is cut off after its quarantine, and its checkpoint never comes back: a new one finds the records standing there."""
    one = Lake(tmp_path)
    one.records(range(3), Mark("shop", "orders", FIRST, 0, "hash", "orders", "id", (OffsetRange(0, 0, 10),), ()))
    one.batch(BatchId("q3", 0), 0, 0, 10, range(5, 10), (3, 4))
    return one


def test_a_record_that_was_found_standing_and_stands_no_more_is_found(behind: Lake) -> None:
    """I4: no batch of the ledger has put it there, so that no sum tells of it."""
    assert behind.codes() == []
    DeltaTable(behind.places.quarantine).delete("offset = 1")
    assert behind.codes() == ["RECORDS_MISSING"]


def test_a_row_that_a_delete_took_is_not_missed_where_others_were_found_standing(behind: Lake) -> None:
    DeltaTable(behind.places.target).delete("_offset = 7")
    assert behind.codes() == []


@pytest.fixture
def read_once(tmp_path: Path) -> Lake:
    """One checkpoint, one batch of ten rows."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(10), ())
    return one


def test_a_delete_whose_row_was_put_back_by_hand_excuses_no_other_that_is_lost(read_once: Lake) -> None:
    """I4: INSERT of an older version's row is how one DELETE of many is taken back; its commit still tells of a row removed."""
    target = DeltaTable(read_once.places.target)
    target.delete("_offset = 3")
    read_once.rows([3], None)
    assert read_once.codes() == []
    _take_behind_the_logs_back(read_once, 4)
    assert read_once.codes() == ["ROWS_DIFFER"]


def test_a_row_that_was_put_back_by_hand_is_not_missed_nor_one_that_was_deleted_twice(read_once: Lake) -> None:
    for gone in ("_offset = 3", "_offset = 5", "_offset = 3"):
        DeltaTable(read_once.places.target).delete(gone)
        assert read_once.codes() == []
        if gone == "_offset = 3":
            read_once.rows([3], None)
            assert read_once.codes() == []
    DeltaTable(read_once.places.target).delete("_offset = 3")
    assert read_once.codes() == []


def test_a_column_that_somebody_added_to_the_ledger_is_none_of_ours(read_once: Lake) -> None:
    assert read_once.codes() == []
    rows = pa.Table.from_pylist([asdict(each) | {"note": "audited"} for each in read_once.ledger])
    write_deltalake(read_once.places.ledger, rows, mode="overwrite", schema_mode="overwrite")
    assert verify(DataFusion(), CONTRACT, read_once.places).findings == ()


def test_a_delete_of_before_a_batch_excuses_no_record_that_it_found_standing(behind: Lake) -> None:
    """I4: what was deleted was read again, and a stricter contract has put it into quarantine."""
    DeltaTable(behind.places.target).delete("_offset = 7")
    rebase = Rebase((FormerEpoch("q3", 0, 0, "orders", "id", ((0, 10),)),), ((0, 0),), (), 2)
    behind.ledger += project_rebase(Binding("orders", "id", "", 1, ("q3",), rebase), "q4", behind.places, "hash", AT, {})
    behind.batch(BatchId("q4", 1), 1, 0, 10, (), (7,))
    assert behind.codes() == []
    DeltaTable(behind.places.quarantine).delete("offset = 1")
    assert set(behind.codes()) == {"RECORDS_MISSING"}


def test_batches_that_a_restore_of_all_took_away_are_told_by_their_pair(read_once: Lake) -> None:
    """I2, I4: target and ledger of one day, and no checkpoint that would say that it has done more."""
    version = DeltaTable(read_once.places.target).version()
    of_that_day = list(read_once.ledger)
    read_once.batch(BatchId("q1", 1), 0, 10, 12, (10, 11), ())
    assert read_once.codes() == []
    DeltaTable(read_once.places.target).restore(version)
    read_once.ledger = of_that_day
    assert read_once.codes() == ["BATCH_MISSING"]
    rebase = Rebase((FormerEpoch("q1", 0, 0, "orders", "id", ((0, 10),)),), ((0, 10),), (), DeltaTable(read_once.places.target).version())
    read_once.ledger += project_rebase(Binding("orders", "id", "", 1, ("q1",), rebase), "q2", read_once.places, "hash", AT, {})
    assert read_once.codes() == [], "the rebase that a start names is the mend"


def test_a_delete_whose_row_came_back_excuses_no_record_that_stands_no_more(behind: Lake) -> None:
    """I4: a rebase has read the deleted row again; what was counted as replayed is lost after that."""
    DeltaTable(behind.places.target).delete("_offset = 7")
    former = FormerEpoch("q3", 0, 0, "orders", "id", ((0, 10),))
    rebase = Rebase((former,), ((0, 0),), (), 2)
    behind.ledger += project_rebase(Binding("orders", "id", "", 1, ("q3",), rebase), "q4", behind.places, "hash", AT, {})
    behind.batch(BatchId("q4", 1), 1, 0, 10, (7,), ())
    assert behind.codes() == []
    DeltaTable(behind.places.quarantine).delete("offset = 1")
    assert set(behind.codes()) == {"RECORDS_MISSING"}


def test_a_delete_that_was_taken_back_excuses_no_row_of_a_stretch_that_was_read_twice_in_part(read_once: Lake) -> None:
    """I4: the sum counts the DELETE, though its row stands again; the row that is lost lies where the rebase did not reach."""
    DeltaTable(read_once.places.target).delete("_offset = 3")
    read_once.rows([3], None)
    read_once.rebase([("q1", 0, 10)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 6, (), ())
    assert read_once.codes() == []
    _take_behind_the_logs_back(read_once, 8)
    assert read_once.codes() == ["RECORDS_MISSING"]


def test_a_record_that_a_rebase_has_put_into_quarantine_stands_for_no_other_that_is_lost(tmp_path: Path) -> None:
    """I4, I5: the deleted row, read again under a stricter contract, is neither removed nor one of those that were there before."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(3, 10), range(3))
    DeltaTable(one.places.target).delete("_offset = 5")
    one.rebase([("q1", 0, 10)], "q2", 4)
    one.batch(SECOND, 1, 4, 10, (), (5,))
    assert one.codes() == []
    DeltaTable(one.places.quarantine).delete("offset = 1")
    assert one.codes() == ["RECORDS_MISSING"]


def _vacuum(lake: Lake) -> None:
    DeltaTable(lake.places.target).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def test_a_delete_in_other_ranges_excuses_no_record_that_stands_no_more_also_after_vacuum(behind: Lake) -> None:
    """I4: what a commit says of itself names no position: of the two that are missing one is lost, and nobody can tell which."""
    behind.batch(BatchId("q3", 1), 0, 10, 20, range(10, 20), ())
    DeltaTable(behind.places.target).delete("_offset = 15")
    _vacuum(behind)
    assert behind.codes() == []
    DeltaTable(behind.places.quarantine).delete("offset = 1")
    assert set(behind.codes()) == {"RECORDS_MISSING", "ROWS_DIFFER"}


def test_a_row_that_a_delete_took_and_two_rebases_had_read_is_not_missed_after_vacuum(read_once: Lake) -> None:
    former = [("q1", 0, 10)]
    for epoch, query in enumerate(("q2", "q3"), 1):
        read_once.rebase(former, query, 0)
        read_once.batch(BatchId(query, 1), epoch, 0, 10, (), ())
        former.append((query, 1, 10))
    DeltaTable(read_once.places.target).delete("_offset = 5")
    assert read_once.codes() == []
    _vacuum(read_once)
    assert read_once.codes() == []
    _take_behind_the_logs_back(read_once, 6)
    assert "RECORDS_MISSING" in read_once.codes()


def test_a_record_that_became_a_row_excuses_none_that_the_quarantine_lost(tmp_path: Path) -> None:
    """I4, I5: cut off after its quarantine, and read again under a looser contract: one record stands in both, and counted twice."""
    one = Lake(tmp_path)
    one.records(range(3), Mark("shop", "orders", FIRST, 0, "hash", "orders", "id", (OffsetRange(0, 0, 10),), ()))
    one.batch(BatchId("q3", 0), 0, 0, 10, (0, *range(5, 10)), (3, 4))
    assert one.codes() == ["IN_BOTH"]
    DeltaTable(one.places.quarantine).update(updates={"state": "'replayed'"}, predicate="offset = 0")
    assert one.codes() == []
    DeltaTable(one.places.quarantine).delete("offset = 1")
    assert one.codes() == ["RECORDS_MISSING"]


def test_rows_that_an_overwrite_has_kept_balance_when_they_were_read_again(read_once: Lake) -> None:
    """Their batch is not in force any more, and the new checkpoint has found them standing: nothing is missing, nor too much."""
    write_deltalake(read_once.places.target, DeltaTable(read_once.places.target).to_pyarrow_table(), mode="overwrite")
    read_once.rebase([("q1", -1, 0)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 20, range(10, 20), ())
    assert read_once.codes() == []
    DeltaTable(read_once.places.target).delete("_offset IN (4, 14)")
    assert read_once.codes() == []
    for gone in (5, 15):
        _take_behind_the_logs_back(read_once, gone)
        assert set(read_once.codes()) == {"RECORDS_MISSING"}


def test_a_later_checkpoint_of_which_a_ledger_put_back_knows_nothing_is_told_by_its_pair(read_once: Lake) -> None:
    """I2, I4: the same where the ledger of that day already knows a rebase, but not the last one."""
    former = [("q1", 0, 10)]
    read_once.rebase(former, "q2", 10)
    read_once.batch(SECOND, 1, 10, 12, (10, 11), ())
    version, of_that_day = DeltaTable(read_once.places.target).version(), list(read_once.ledger)
    former.append(("q2", 1, 12))
    read_once.rebase(former, "q3", 12)
    read_once.batch(BatchId("q3", 1), 2, 12, 14, (12, 13), ())
    assert read_once.codes() == []
    DeltaTable(read_once.places.target).restore(version)
    read_once.ledger = of_that_day
    assert read_once.codes() == ["BATCH_MISSING"]
    read_once.rebase(former, "q4", 12)
    assert read_once.codes() == [], "the rebase that a start names is the mend"


def test_a_duplicate_that_a_rebase_has_put_into_quarantine_stands_for_no_record_that_is_lost(tmp_path: Path) -> None:
    """I4, I5: with `conflicts: table` since, the rebase began in the midst of the batch; what is lost lies before that."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, (3, 4, 5, 6, 8, 9), range(3), losers=1)
    one.rebase([("q1", 0, 10)], "q2", 6)
    one.batch(SECOND, 1, 6, 10, (), (7,))
    assert one.codes() == []
    DeltaTable(one.places.quarantine).delete("offset = 1")
    assert one.codes() == ["RECORDS_MISSING"]


def test_records_that_the_quarantine_lost_and_a_rebase_has_put_there_again_balance(tmp_path: Path) -> None:
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, (3, 4, 5, 6, 8, 9), range(3), losers=1)
    DeltaTable(one.places.quarantine).delete("offset IN (1, 2)")
    assert one.codes() == ["QUARANTINE_DIFFERS"]
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 6, (), (1, 2))
    assert one.codes() == ["RECORDS_MISSING"], "not all of the batch has been read again"
    one.batch(BatchId("q2", 2), 1, 6, 12, (10, 11), (), losers=1)
    assert one.codes() == []


def test_a_row_that_was_put_back_by_hand_is_known_also_after_vacuum(read_once: Lake) -> None:
    """I4: a DELETE that took too much, taken back in part; what is put back excuses no row that is lost."""
    DeltaTable(read_once.places.target).delete("_offset IN (3, 4)")
    read_once.rows([3], None)
    _vacuum(read_once)
    assert read_once.codes() == []
    DeltaTable(read_once.places.target).delete("_offset = 7")
    read_once.rows([7], None)
    assert read_once.codes() == []
    _take_behind_the_logs_back(read_once, 5)
    assert read_once.codes() == ["ROWS_DIFFER"]
    _vacuum(read_once)
    assert read_once.codes() == ["ROWS_DIFFER"]


def test_a_delete_whose_row_was_put_back_by_hand_excuses_no_other_also_after_vacuum(read_once: Lake) -> None:
    """I4: one row was removed, by the figure of the DELETE, and one is missing: another one."""
    DeltaTable(read_once.places.target).delete("_offset = 3")
    read_once.rows([3], None)
    _vacuum(read_once)
    _take_behind_the_logs_back(read_once, 4)
    _vacuum(read_once)
    assert read_once.codes() == ["ROWS_DIFFER"]


def test_a_row_that_a_delete_took_and_that_was_put_back_and_lost_again_is_found(read_once: Lake) -> None:
    """I4: the DELETE was not the last that happened to it; who took it then is named."""
    DeltaTable(read_once.places.target).delete("_offset = 5")
    read_once.rows([5], None)
    assert read_once.codes() == []
    _take_behind_the_logs_back(read_once, 5)
    (found,) = read_once.findings()
    assert found.code == "ROWS_DIFFER"
    assert found.what.endswith(f"the target holds 9; version {DeltaTable(read_once.places.target).version()} (WRITE) took 1")


def test_who_puts_a_copy_in_by_hand_and_deletes_it_again_has_excused_no_row(tmp_path: Path) -> None:
    """I4: of ten records one is a duplicate; its copy is made a row and taken away again, and another row is lost."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(9), (), losers=1)
    one.rows([9], None)
    assert one.codes() == ["ROWS_DIFFER"], "one too many"
    DeltaTable(one.places.target).delete("_offset = 9")
    assert one.codes() == []
    _take_behind_the_logs_back(one, 4)
    assert one.codes() == ["ROWS_DIFFER"]


def test_what_was_put_back_after_a_delete_that_vacuum_has_made_unknown_may_be_what_it_took(read_once: Lake) -> None:
    DeltaTable(read_once.places.target).delete("_offset IN (3, 4)")
    read_once.rows([3], None)
    _vacuum(read_once)
    DeltaTable(read_once.places.target).delete("_offset = 3")
    assert read_once.codes() == []
    _take_behind_the_logs_back(read_once, 5)
    assert read_once.codes() == ["ROWS_DIFFER"]


def test_a_row_that_was_read_again_and_deleted_and_read_again_is_none_that_is_lost(read_once: Lake) -> None:
    former = [("q1", 0, 10)]
    for epoch, query in enumerate(("q2", "q3"), 1):
        DeltaTable(read_once.places.target).delete("_offset = 5")
        assert read_once.codes() == []
        read_once.rebase(former, query, 3)
        read_once.batch(BatchId(query, 1), epoch, 3, 10, (5,), ())
        assert read_once.codes() == []
        former.append((query, 1, 10))
    _take_behind_the_logs_back(read_once, 5)
    assert set(read_once.codes()) == {"RECORDS_MISSING"}


def test_a_copy_of_a_lost_row_that_another_partition_has_put_in_is_no_loss(tmp_path: Path) -> None:
    """The event stands: to the checkpoint that has read all again the first copy is a duplicate."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(9), (), losers=1)
    _take_behind_the_logs_back(one, 4)
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 10, (), (), losers=2)
    assert one.codes() == []
    _take_behind_the_logs_back(one, 5)
    assert set(one.codes()) == {"RECORDS_MISSING"}


def test_a_record_that_was_put_back_into_quarantine_is_missed_no_more(lake: Lake) -> None:
    DeltaTable(lake.places.quarantine).delete("offset = 12")
    assert set(lake.codes()) == {"RECORDS_MISSING"}
    lake.records([12], Mark("shop", "orders", SECOND, 1, "hash", "orders", "id", (OffsetRange(0, 0, 20),), ()))
    assert lake.codes() == []


def test_a_row_by_hand_where_two_checkpoints_had_a_duplicate_is_one_too_many(tmp_path: Path) -> None:
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(9), (), losers=1)
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 10, (), (), losers=1)
    assert one.codes() == []
    one.rows([9], None)
    assert one.codes() == ["ROWS_DIFFER"]


def test_rows_that_were_deleted_and_read_again_into_the_midst_of_a_batch_are_not_taken_for_its_duplicates(tmp_path: Path) -> None:
    """A DELETE of too much, and the rebase that mends it: nothing is missing."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(9), (), losers=1)
    DeltaTable(one.places.target).delete("_offset IN (1, 2)")
    assert one.codes() == []
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 6, (1, 2), ())
    assert one.codes() == []
    DeltaTable(one.places.target).delete("_offset = 1")
    assert one.codes() == []
    _take_behind_the_logs_back(one, 8)
    assert one.codes() == ["RECORDS_MISSING"]


def test_a_duplicate_that_one_rebase_has_made_a_row_and_a_delete_has_taken_stands_for_none_that_is_lost(tmp_path: Path) -> None:
    """I4: the batch in whose midst two rebases began lacks a record, whatever the later ones have put there."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, (3, 4, 5, 6, 8, 9), range(3), losers=1)
    one.rebase([("q1", 0, 10)], "q2", 6)
    one.batch(SECOND, 1, 6, 20, (*range(10, 15), *range(16, 20)), (7,), losers=1)
    one.rebase([("q1", 0, 10), ("q2", 1, 20)], "q3", 15)
    one.batch(BatchId("q3", 1), 2, 15, 20, (15,), ())
    assert one.codes() == []
    DeltaTable(one.places.quarantine).delete("offset = 1")
    assert one.codes() == ["RECORDS_MISSING"]


def test_a_record_that_is_a_duplicate_to_a_looser_contract_stands_in_quarantine_and_is_missed_there(tmp_path: Path) -> None:
    """It was refused, sent again and taken, and the contract made looser: read again it is replayed, for it stands where it stood."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, (0, *range(2, 10)), (1,))
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 12, (10, 11), ())
    assert one.codes() == []
    one.rows([1], None)
    assert one.codes() == ["IN_BOTH"]
    DeltaTable(one.places.target).delete("_offset = 1")
    DeltaTable(one.places.quarantine).delete("offset = 1")
    assert set(one.codes()) == {"RECORDS_MISSING"}


def test_a_row_that_is_lost_is_found_also_where_a_record_that_kafka_has_compacted_stands_in_its_place(tmp_path: Path) -> None:
    """I4: by number nothing is missing; which positions a commit took is known."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, (0, *range(2, 10)), (1,))
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 12, (10, 11), (), gap=1)
    _take_behind_the_logs_back(one, 11)
    assert one.codes() == ["RECORDS_MISSING"]
    one.rows([11], None)
    assert one.codes() == []


def test_of_rows_that_a_delete_took_some_may_have_come_back_with_a_rebase_also_after_vacuum(read_once: Lake) -> None:
    read_once.batch(BatchId("q1", 1), 0, 10, 20, range(10, 20), ())
    DeltaTable(read_once.places.target).delete("_offset IN (3, 13)")
    _vacuum(read_once)
    assert read_once.codes() == []
    read_once.rebase([("q1", 1, 20)], "q2", 10)
    read_once.batch(SECOND, 1, 10, 20, (13,), ())
    assert read_once.codes() == []
    _take_behind_the_logs_back(read_once, 5)
    assert read_once.codes() == ["ROWS_DIFFER"], "who took it is known: the DELETE's figure says nothing of it"


def test_a_row_that_is_known_to_be_lost_is_not_told_by_the_figure_of_a_delete(read_once: Lake) -> None:
    """I4: of the two rows that VACUUM lets nobody name one came back, and another one is lost."""
    DeltaTable(read_once.places.target).delete("_offset IN (3, 4)")
    _vacuum(read_once)
    read_once.rebase([("q1", 0, 10)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 4, (3,), ())
    assert read_once.codes() == []
    _take_behind_the_logs_back(read_once, 8)
    assert read_once.codes() == ["RECORDS_MISSING"]


def test_a_merge_that_says_it_took_nothing_is_not_compared(read_once: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's own column, filled each day: that costs verify nothing."""
    target = DeltaTable(read_once.places.target)
    source = pa.table({"o": pa.array([3], pa.int64())})
    target.merge(source, "target._offset = source.o", "source", "target").when_matched_update({"id": "target.id"}).execute()
    assert DeltaLog(LocalFiles(), read_once.places.target).commit(target.version()).removed
    monkeypatch.setattr(taken, "_positions", lambda *_: pytest.fail("compared"))
    assert read_once.codes() == []


def test_what_kafka_has_compacted_stands_all_the_same_and_only_its_own_batch_can_miss_it(tmp_path: Path) -> None:
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(3, 10), range(3))
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 12, (10, 11), (), gap=1)
    assert one.codes() == []
    DeltaTable(one.places.quarantine).delete("offset = 1")
    assert [(found.code, found.batch_id) for found in one.findings()] == [("RECORDS_MISSING", 0)]


def test_each_batch_that_has_read_what_is_lost_is_named(lake: Lake) -> None:
    DeltaTable(lake.places.quarantine).delete("offset = 1")
    lake.codes()
    assert [found.batch_id for found in lake.findings()] == [0, 1]


def test_what_a_batch_at_hand_has_put_into_quarantine_is_none_too_many_for_the_one_before(tmp_path: Path) -> None:
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(9), (), losers=1)
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 10, (), (), losers=1)
    one.rebase([("q1", 0, 10), ("q2", 1, 10)], "q3", 5)
    one.records([9], Mark("shop", "orders", BatchId("q3", 1), 2, "hash", "orders", "id", (OffsetRange(0, 5, 10),), ()))
    assert one.codes() == []


def test_a_delete_of_before_a_batch_excuses_none_of_what_it_found(tmp_path: Path) -> None:
    """I4: the deleted event came again at offset 12, and to the checkpoint that reads all again the first copy is a duplicate."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(3, 10), range(3))
    DeltaTable(one.places.target).delete("_offset = 7")
    one.batch(BatchId("q1", 1), 0, 10, 13, range(10, 13), ())
    one.rebase([("q1", 1, 13)], "q2", 0)
    one.batch(SECOND, 1, 0, 13, (), (), losers=1)
    assert one.codes() == []
    DeltaTable(one.places.quarantine).delete("offset = 1")
    assert set(one.codes()) == {"RECORDS_MISSING"}


def test_a_copy_by_hand_that_is_deleted_again_excuses_no_record_that_the_quarantine_lost(tmp_path: Path) -> None:
    """I4: it did not stand when the batches were committed."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(3, 9), range(3), losers=1)
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 10, (), (), losers=1)
    one.rows([9], None)
    DeltaTable(one.places.target).delete("_offset = 9")
    assert one.codes() == []
    DeltaTable(one.places.quarantine).delete("offset = 1")
    assert set(one.codes()) == {"RECORDS_MISSING"}


def test_the_figure_of_a_delete_excuses_no_row_of_a_later_batch(read_once: Lake) -> None:
    """I4: what it took came back with a rebase; VACUUM has made unknown who took another row since."""
    DeltaTable(read_once.places.target).delete("_offset = 3")
    read_once.rebase([("q1", 0, 10)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 20, (3, *range(10, 20)), ())
    _take_behind_the_logs_back(read_once, 15)
    _vacuum(read_once)
    assert read_once.codes() == ["RECORDS_MISSING"]


def test_where_nothing_was_read_again_the_figures_of_deletes_tell_just_as_many_as_are_missing(read_once: Lake) -> None:
    """I4: one took copies made by hand, and there is one row missing, not two."""
    read_once.rebase([("q1", 0, 10)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 20, range(10, 18), (), losers=2)
    read_once.rows([18, 19], None)
    DeltaTable(read_once.places.target).delete("_offset IN (18, 19)")
    _take_behind_the_logs_back(read_once, 15)
    _vacuum(read_once)
    assert read_once.codes() == ["RECORDS_MISSING"]


def test_of_what_two_checkpoints_have_read_no_more_may_be_missing_than_the_figures_tell(read_once: Lake) -> None:
    read_once.batch(BatchId("q1", 1), 0, 10, 20, range(10, 20), ())
    read_once.rebase([("q1", 1, 20)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 10, (), ())
    read_once.batch(BatchId("q2", 2), 1, 10, 20, (), ())
    DeltaTable(read_once.places.target).delete("_offset IN (3, 13)")
    _vacuum(read_once)
    assert read_once.codes() == []
    _take_behind_the_logs_back(read_once, 5)
    _vacuum(read_once)
    assert set(read_once.codes()) == {"RECORDS_MISSING"}


def test_a_delete_of_before_an_overwrite_that_kept_all_counts_still(read_once: Lake) -> None:
    DeltaTable(read_once.places.target).delete("_offset = 3")
    write_deltalake(read_once.places.target, DeltaTable(read_once.places.target).to_pyarrow_table(), mode="overwrite")
    assert "ROWS_DIFFER" not in read_once.codes()


def test_a_restore_has_not_taken_what_it_took_back(read_once: Lake) -> None:
    DeltaTable(read_once.places.target).delete("_offset = 3")
    version = DeltaTable(read_once.places.target).version()
    read_once.rows([3], None)
    DeltaTable(read_once.places.target).restore(version)
    assert read_once.codes() == []


def test_a_record_that_a_batch_has_put_into_quarantine_is_told_by_its_batch_whatever_stands_in_its_place(tmp_path: Path) -> None:
    """I4: Kafka has compacted the record that was refused before, which stands there all the same."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, (0, *range(2, 10)), (1,))
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 12, (10,), (11,), gap=1)
    assert one.codes() == []
    DeltaTable(one.places.quarantine).delete("offset = 11")
    assert one.codes() == ["RECORDS_MISSING"]
