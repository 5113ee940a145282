"""`ingest verify` where somebody deletes rows: a DELETE is shown with its version, is no finding, and excuses nothing else (I4)."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta.batch_commit import BatchId
from ingest.verify.count import TableRows
from ingest.verify.deletions import Removed
from tests.unit.verify.proof_lake import Lake
from tests.unit.verify.test_verdict import filled


def test_a_delete_is_shown_with_its_version_and_number(lake: Lake) -> None:
    filled(lake).target.delete("_offset IN (1, 2, 12)")
    lake.target.delete("_offset = 13")
    lake.quarantine.delete("offset = 9")
    said = lake.verified()
    assert (said.findings, said.target, said.quarantine) == ((), TableRows(15, 4, 0, 0, 0, 0, 11), TableRows(3, 1, 0, 0, 0, 0, 2))
    first = lake.target.version() - 1
    assert said.deletes == (
        Removed("target", first, 3),
        Removed("target", first + 1, 1),
        Removed("quarantine", lake.quarantine.version(), 1),
    )


def test_a_delete_excuses_only_as_many_as_it_took_from_that_very_batch(lake: Lake) -> None:
    filled(lake).target.delete("_offset = 1")
    lake.take(2, 12)
    said = lake.verified()
    assert [(found.batch, found.what.split(" and ")[-1]) for found in said.findings] == [
        (2, "1 are missing without a DELETE"),
        (3, "1 are missing without a DELETE"),
    ]
    assert (said.target.removed, said.target.missing) == (1, 2)


def test_a_delete_in_another_partition_or_batch_excuses_nothing(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    lake.batch(0, 10, range(100, 105), duplicates=5, partition=1)
    lake.target.delete("_offset = 3")
    lake.rows([3], of=BatchId(1, 2))
    lake.target.delete("_partition = 1")
    codes = [found.batch for found in lake.findings() if found.code == "ROWS_DIFFER"]
    assert codes == [], "what was deleted and put back is not missed"
    lake.take(4)
    lake.target.delete("_offset = 5")
    assert lake.verified().target.missing == 0, "a DELETE that was taken back by hand hides a loss of its size (an accepted limit)"
    lake.take(6)
    assert lake.verified().target.missing == 1


def test_a_delete_that_a_restore_undid_excuses_nothing(lake: Lake) -> None:
    version = filled(lake).target.version()
    lake.target.delete("_offset = 3")
    lake.target.restore(version)
    assert lake.verified().deletes == ()
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"]


def test_a_delete_of_before_an_overwrite_that_kept_all_counts_still(lake: Lake) -> None:
    filled(lake).target.delete("_offset = 3")
    write_deltalake(lake.places.target, lake.target.to_pyarrow_table(), mode="overwrite")
    assert lake.codes() == []


def test_a_row_that_was_deleted_and_read_again_is_counted_once(lake: Lake) -> None:
    """The seek has counted what stood; the DELETE before it is no longer looked for."""
    filled(lake).target.delete("_offset = 3")
    lake.seek(0)
    lake.batch(0, 20, (3,), gap=1)
    said = lake.verified()
    assert (said.findings, said.deletes, said.target) == ((), (), TableRows(16, 0, 1, 0, 0, 0, 15))
    lake.target.delete("_offset = 4")
    said = lake.verified()
    assert (said.findings, said.target) == ((), TableRows(16, 1, 1, 0, 0, 0, 14))
    lake.take(5)
    assert lake.codes() == ["ROWS_DIFFER"]


def test_a_delete_of_before_a_seek_excuses_no_row_that_went_after_it(lake: Lake) -> None:
    filled(lake).target.delete("_offset = 3")
    lake.seek(0)
    lake.batch(0, 20, (3,), gap=1)
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"]


def test_a_batch_read_again_may_lack_what_deletes_took_from_both_tables(lake: Lake) -> None:
    filled(lake).seek(0)
    lake.batch(0, 20, (), gap=1)
    lake.target.delete("_offset = 1")
    lake.quarantine.delete("offset = 8")
    said = lake.verified()
    assert (said.findings, said.target.removed, said.quarantine.removed) == ((), 1, 1)
    rows = lake.quarantine.to_pyarrow_table()
    write_deltalake(lake.places.quarantine, rows.filter(pc.not_equal(rows["offset"], 9)), mode="overwrite", predicate="offset >= 0")
    (found,) = lake.findings()
    assert (found.code, found.batch) == ("QUARANTINE_DIFFERS", 2)


@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_where_vacuum_took_the_files_a_delete_counts_by_its_own_figure(lake: Lake, table: str) -> None:
    filled(lake)
    column, offsets = ("_offset", (1, 12)) if table == "target" else ("offset", (8, 17))
    DeltaTable(f"{lake.places.root}/{table}").delete(f"{column} IN {offsets}")
    lake.vacuum(table)
    said = lake.verified()
    version = DeltaTable(f"{lake.places.root}/{table}").version()
    assert (said.findings, [(each.table, each.rows) for each in said.deletes]) == ((), [(table, 2)])
    assert said.deletes[0].version <= version


def test_where_vacuum_took_the_files_more_than_the_figure_is_named_and_a_loss_of_its_size_hides(lake: Lake) -> None:
    """The second is an accepted limit: `--against-kafka` finds it."""
    filled(lake).target.delete("_offset = 1")
    lake.rows([1], of=BatchId(1, 2))
    lake.take(12)
    lake.vacuum()
    assert lake.codes() == []
    lake.take(3)
    lake.vacuum()
    assert lake.codes() == ["ROWS_DIFFER", "ROWS_DIFFER"]


def test_the_figure_of_a_delete_excuses_no_row_of_a_later_batch(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    lake.target.delete("_offset = 1")
    lake.rows([1], of=BatchId(1, 2))
    lake.batch(10, 20, range(10, 20))
    lake.take(15)
    lake.vacuum()
    assert [found.batch for found in lake.findings()] == [3]


def test_nothing_is_looked_for_where_nothing_is_short(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table from which rows were deleted and read again: that costs verify nothing."""
    filled(lake).target.delete("_offset = 3")
    lake.rows([3], of=BatchId(1, 2))
    monkeypatch.setattr("ingest.verify.deletions.groups", lambda *_: pytest.fail("counted"))
    assert lake.codes() == []
