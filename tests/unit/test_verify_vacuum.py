"""`ingest verify` where VACUUM has taken the files that tell which rows a DELETE took (I4, I5)."""

from __future__ import annotations

from deltalake import DeltaTable

from ingest.stream.offsets import BatchId
from tests.unit.proof_lake import SECOND, Lake


def test_a_delete_in_other_ranges_excuses_no_record_that_stands_no_more_also_after_vacuum(behind: Lake) -> None:
    """I4: what a commit says of itself names no position: of the two that are missing one is lost, and nobody can tell which."""
    behind.batch(BatchId("q3", 1), 0, 10, 20, range(10, 20), ())
    DeltaTable(behind.places.target).delete("_offset = 15")
    behind.vacuum()
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
    read_once.vacuum()
    assert read_once.codes() == []
    read_once.take(6)
    assert "RECORDS_MISSING" in read_once.codes()


def test_a_row_that_was_put_back_by_hand_is_known_also_after_vacuum(read_once: Lake) -> None:
    """I4: a DELETE that took too much, taken back in part; what is put back excuses no row that is lost."""
    DeltaTable(read_once.places.target).delete("_offset IN (3, 4)")
    read_once.rows([3], None)
    read_once.vacuum()
    assert read_once.codes() == []
    DeltaTable(read_once.places.target).delete("_offset = 7")
    read_once.rows([7], None)
    assert read_once.codes() == []
    read_once.take(5)
    assert read_once.codes() == ["ROWS_DIFFER"]
    read_once.vacuum()
    assert read_once.codes() == ["ROWS_DIFFER"]


def test_a_delete_whose_row_was_put_back_by_hand_excuses_no_other_also_after_vacuum(read_once: Lake) -> None:
    """I4: one row was removed, by the figure of the DELETE, and one is missing: another one."""
    DeltaTable(read_once.places.target).delete("_offset = 3")
    read_once.rows([3], None)
    read_once.vacuum()
    read_once.take(4)
    read_once.vacuum()
    assert read_once.codes() == ["ROWS_DIFFER"]


def test_what_was_put_back_after_a_delete_that_vacuum_has_made_unknown_may_be_what_it_took(read_once: Lake) -> None:
    DeltaTable(read_once.places.target).delete("_offset IN (3, 4)")
    read_once.rows([3], None)
    read_once.vacuum()
    DeltaTable(read_once.places.target).delete("_offset = 3")
    assert read_once.codes() == []
    read_once.take(5)
    assert read_once.codes() == ["ROWS_DIFFER"]


def test_of_rows_that_a_delete_took_some_may_have_come_back_with_a_rebase_also_after_vacuum(read_once: Lake) -> None:
    read_once.batch(BatchId("q1", 1), 0, 10, 20, range(10, 20), ())
    DeltaTable(read_once.places.target).delete("_offset IN (3, 13)")
    read_once.vacuum()
    assert read_once.codes() == []
    read_once.rebase([("q1", 1, 20)], "q2", 10)
    read_once.batch(SECOND, 1, 10, 20, (13,), ())
    assert read_once.codes() == []
    read_once.take(5)
    assert read_once.codes() == ["ROWS_DIFFER"], "who took it is known: the DELETE's figure says nothing of it"


def test_a_row_that_is_known_to_be_lost_is_not_told_by_the_figure_of_a_delete(read_once: Lake) -> None:
    """I4: of the two rows that VACUUM lets nobody name one came back, and another one is lost."""
    DeltaTable(read_once.places.target).delete("_offset IN (3, 4)")
    read_once.vacuum()
    read_once.rebase([("q1", 0, 10)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 4, (3,), ())
    assert read_once.codes() == []
    read_once.take(8)
    assert read_once.codes() == ["RECORDS_MISSING"]


def test_the_figure_of_a_delete_excuses_no_row_of_a_later_batch(read_once: Lake) -> None:
    """I4: what it took came back with a rebase; VACUUM has made unknown who took another row since."""
    DeltaTable(read_once.places.target).delete("_offset = 3")
    read_once.rebase([("q1", 0, 10)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 20, (3, *range(10, 20)), ())
    read_once.take(15)
    read_once.vacuum()
    assert read_once.codes() == ["RECORDS_MISSING"]


def test_where_nothing_was_read_again_the_figures_of_deletes_tell_just_as_many_as_are_missing(read_once: Lake) -> None:
    """I4: one took copies made by hand, and there is one row missing, not two."""
    read_once.rebase([("q1", 0, 10)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 20, range(10, 18), (), losers=2)
    read_once.rows([18, 19], None)
    DeltaTable(read_once.places.target).delete("_offset IN (18, 19)")
    read_once.take(15)
    read_once.vacuum()
    assert read_once.codes() == ["RECORDS_MISSING"]


def test_of_what_two_checkpoints_have_read_no_more_may_be_missing_than_the_figures_tell(read_once: Lake) -> None:
    read_once.batch(BatchId("q1", 1), 0, 10, 20, range(10, 20), ())
    read_once.rebase([("q1", 1, 20)], "q2", 0)
    read_once.batch(SECOND, 1, 0, 10, (), ())
    read_once.batch(BatchId("q2", 2), 1, 10, 20, (), ())
    DeltaTable(read_once.places.target).delete("_offset IN (3, 13)")
    read_once.vacuum()
    assert read_once.codes() == []
    read_once.take(5)
    read_once.vacuum()
    assert set(read_once.codes()) == {"RECORDS_MISSING"}
