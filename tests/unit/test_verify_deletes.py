"""`ingest verify` where somebody deletes rows and puts some back; what a DELETE took is not missed, nothing hides behind it (I4, I5)."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable, write_deltalake

from ingest.stream.binding import Binding, FormerEpoch, Rebase
from ingest.stream.ledger_row import project_rebase
from ingest.stream.offsets import BatchId
from tests.unit.proof_lake import AT, FIRST, SECOND, Lake


def test_rows_that_were_lost_and_came_back_with_a_rebase_balance_again(read_once: Lake) -> None:
    """I4: nothing is missing any more, though both checkpoints have inserted them."""
    read_once.take(4)
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
        read_once.take(gone)
        assert set(read_once.codes()) == {"RECORDS_MISSING"}


def test_a_row_that_a_delete_took_is_not_missed_where_others_were_found_standing(behind: Lake) -> None:
    DeltaTable(behind.places.target).delete("_offset = 7")
    assert behind.codes() == []


def test_a_delete_whose_row_was_put_back_by_hand_excuses_no_other_that_is_lost(read_once: Lake) -> None:
    """I4: INSERT of an older version's row is how one DELETE of many is taken back; its commit still tells of a row removed."""
    target = DeltaTable(read_once.places.target)
    target.delete("_offset = 3")
    read_once.rows([3], None)
    assert read_once.codes() == []
    read_once.take(4)
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


def test_a_delete_of_before_a_batch_excuses_no_record_that_it_found_standing(behind: Lake) -> None:
    """I4: what was deleted was read again, and a stricter contract has put it into quarantine."""
    DeltaTable(behind.places.target).delete("_offset = 7")
    rebase = Rebase((FormerEpoch("q3", 0, 0, "orders", "id", ((0, 10),)),), ((0, 0),), (), 2)
    behind.ledger += project_rebase(Binding("orders", "id", "", 1, ("q3",), rebase), "q4", behind.places, "hash", AT, {})
    behind.batch(BatchId("q4", 1), 1, 0, 10, (), (7,))
    assert behind.codes() == []
    DeltaTable(behind.places.quarantine).delete("offset = 1")
    assert set(behind.codes()) == {"RECORDS_MISSING"}


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
    read_once.take(8)
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


def test_rows_that_an_overwrite_has_kept_balance_when_they_were_read_again(read_once: Lake) -> None:
    """Their batch is not in force any more, and the new checkpoint has found them standing: nothing is missing, nor too much."""
    write_deltalake(read_once.places.target, DeltaTable(read_once.places.target).to_pyarrow_table(), mode="overwrite")
    read_once.rebase([("q1", -1, 0)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 20, range(10, 20), ())
    assert read_once.codes() == []
    DeltaTable(read_once.places.target).delete("_offset IN (4, 14)")
    assert read_once.codes() == []
    for gone in (5, 15):
        read_once.take(gone)
        assert set(read_once.codes()) == {"RECORDS_MISSING"}


def test_a_row_that_a_delete_took_and_that_was_put_back_and_lost_again_is_found(read_once: Lake) -> None:
    """I4: the DELETE was not the last that happened to it; who took it then is named."""
    DeltaTable(read_once.places.target).delete("_offset = 5")
    read_once.rows([5], None)
    assert read_once.codes() == []
    read_once.take(5)
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
    one.take(4)
    assert one.codes() == ["ROWS_DIFFER"]


def test_a_row_that_was_read_again_and_deleted_and_read_again_is_none_that_is_lost(read_once: Lake) -> None:
    former = [("q1", 0, 10)]
    for epoch, query in enumerate(("q2", "q3"), 1):
        DeltaTable(read_once.places.target).delete("_offset = 5")
        assert read_once.codes() == []
        read_once.rebase(former, query, 3)
        read_once.batch(BatchId(query, 1), epoch, 3, 10, (5,), ())
        assert read_once.codes() == []
        former.append((query, 1, 10))
    read_once.take(5)
    assert set(read_once.codes()) == {"RECORDS_MISSING"}


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
    one.take(8)
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
