"""`ingest verify` after a user's DELETE: it is listed with its version, is not a finding, and excuses no other loss (I4)."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from ingest.delta.batch_commit import BatchId
from ingest.verify.count import TableRows
from ingest.verify.deletions import Removed
from tests.unit.verify.proof_lake import Lake
from tests.unit.verify.test_verdict import filled


def test_a_delete_is_listed_with_its_version_and_number_of_rows(lake: Lake) -> None:
    filled(lake).target.delete("_offset IN (1, 2, 12)")
    lake.target.delete("_offset = 13")
    lake.quarantine.delete("offset = 9")
    result = lake.verified()
    assert (result.findings, result.target, result.quarantine) == ((), TableRows(15, 4, 0, 0, 0, 0, 11), TableRows(3, 1, 0, 0, 0, 0, 2))
    first = lake.target.version() - 1
    assert result.deletes == (
        Removed("target", first, 3),
        Removed("target", first + 1, 1),
        Removed("quarantine", lake.quarantine.version(), 1),
    )


def test_a_delete_that_repeats_the_metadata_of_our_erasure_is_anothers(lake: Lake) -> None:
    """I4: as an engine does whose session has it set."""
    filled(lake).erase(3)
    text = lake.log().commit(lake.target.version()).user_metadata
    lake.target.delete("_offset = 4", commit_properties=CommitProperties(custom_metadata={"userMetadata": text or ""}))
    verified = lake.verified()
    assert (verified.findings, [each.rows for each in verified.deletes]) == ((), [1])


def test_a_delete_excuses_only_the_rows_that_it_removed_from_the_same_batch(lake: Lake) -> None:
    filled(lake).target.delete("_offset = 1")
    lake.take(2, 12)
    result = lake.verified()
    assert [(found.batch, "1 are missing without a DELETE" in found.what) for found in result.findings] == [(2, True), (3, True)]
    assert (result.target.removed, result.target.missing) == (1, 2)


def test_a_delete_in_another_partition_or_batch_excuses_nothing(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    lake.batch(0, 10, range(100, 105), duplicates=5, partition=1)
    lake.target.delete("_offset = 3")
    lake.rows([3], of=BatchId(1, 2))
    lake.target.delete("_partition = 1")
    assert lake.codes() == [], "rows that were deleted and inserted again are not missing"
    lake.take(4)
    lake.target.delete("_offset = 5")
    (found,) = lake.findings()
    assert found.batch == 2 and found.code == "ROWS_DIFFER", "a DELETE that was undone by hand excuses no other row"


def test_a_delete_does_not_excuse_another_row_than_those_it_took(lake: Lake) -> None:
    """I4: the numbers agree, the rows do not."""
    filled(lake).target.delete("_offset = 3")
    lake.rows([3], of=BatchId(1, 2))
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"]


def test_what_a_delete_took_is_read_from_the_files_of_the_batches_that_lack_rows(lake: Lake) -> None:
    """A table may be large. Here the file of another batch is gone."""
    filled(lake)
    rows = lake.target.to_pyarrow_table()
    lake.target.delete("_offset = 3")
    before = {*lake.target.file_uris()}
    write_deltalake(lake.places.target, rows.filter(pc.field("_offset") >= 10), mode="overwrite", predicate="_offset >= 10")
    (gone,) = before - {*lake.target.file_uris()}
    Path(gone).unlink()
    lake.rows([3], of=BatchId(1, 2))
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"], "the DELETE took another row"


def test_a_delete_that_a_restore_undid_excuses_nothing(lake: Lake) -> None:
    version = filled(lake).target.version()
    lake.target.delete("_offset = 3")
    lake.target.restore(version)
    assert lake.verified().deletes == ()
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"]


def test_a_delete_before_an_overwrite_that_kept_all_rows_still_counts(lake: Lake) -> None:
    filled(lake).target.delete("_offset = 3")
    write_deltalake(lake.places.target, lake.target.to_pyarrow_table(), mode="overwrite")
    assert lake.codes() == []


def test_a_row_that_was_deleted_and_re_read_is_counted_once(lake: Lake) -> None:
    """A DELETE explains what it took from the batch of then: the row that was read again belongs to another."""
    filled(lake).target.delete("_offset = 3")
    lake.seek(0)
    lake.batch(0, 20, (3,), gap=1)
    result = lake.verified()
    assert (result.findings, len(result.deletes), result.target) == ((), 1, TableRows(16, 1, 0, 0, 0, 0, 15))
    lake.target.delete("_offset = 4")
    result = lake.verified()
    assert (result.findings, result.target) == ((), TableRows(16, 2, 0, 0, 0, 0, 14))
    lake.take(5)
    assert lake.codes() == ["ROWS_DIFFER"]


def test_a_delete_before_a_seek_excuses_no_row_that_is_lost_after_it(lake: Lake) -> None:
    filled(lake).target.delete("_offset = 3")
    lake.seek(0)
    lake.batch(0, 20, (3,), gap=1)
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"]


def test_a_re_read_batch_may_lack_the_rows_that_deletes_removed_from_both_tables(lake: Lake) -> None:
    filled(lake).seek(0)
    lake.batch(0, 20, (), gap=1)
    lake.target.delete("_offset = 1")
    lake.quarantine.delete("offset = 8")
    result = lake.verified()
    assert (result.findings, result.target.removed, result.quarantine.removed) == ((), 1, 1)
    lake.take_records(9)
    (found,) = lake.findings()
    assert (found.code, found.batch) == ("QUARANTINE_DIFFERS", 2)


@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_after_vacuum_a_delete_counts_by_its_own_number_of_rows(lake: Lake, table: str) -> None:
    filled(lake)
    column, offsets = ("_offset", (1, 12)) if table == "target" else ("offset", (8, 17))
    DeltaTable(f"{lake.places.root}/{table}").delete(f"{column} IN {offsets}")
    lake.vacuum(table)
    result = lake.verified()
    version = DeltaTable(f"{lake.places.root}/{table}").version()
    assert (result.findings, [(each.table, each.rows) for each in result.deletes]) == ((), [(table, 2)])
    assert result.deletes[0].version <= version


def test_after_vacuum_a_delete_hides_a_loss_up_to_its_own_number_of_rows_and_no_more(lake: Lake) -> None:
    """The hidden loss is an accepted limit: `--against-kafka` finds it."""
    filled(lake).target.delete("_offset = 1")
    lake.rows([1], of=BatchId(1, 2))
    lake.take(12)
    lake.vacuum()
    assert lake.codes() == []
    lake.take(3)
    lake.vacuum()
    assert lake.codes() == ["ROWS_DIFFER", "ROWS_DIFFER"]


def test_the_number_of_rows_of_a_delete_excuses_no_row_of_a_later_batch(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    lake.target.delete("_offset = 1")
    lake.rows([1], of=BatchId(1, 2))
    lake.batch(10, 20, range(10, 20))
    lake.take(15)
    lake.vacuum()
    assert [found.batch for found in lake.findings()] == [3]


def test_deletes_are_not_searched_if_no_row_is_missing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were deleted and inserted again cost verify nothing."""
    filled(lake).target.delete("_offset = 3")
    lake.rows([3], of=BatchId(1, 2))
    monkeypatch.setattr("ingest.verify.deletions.sums_at", lambda *_: pytest.fail("verify searched for deletes"))
    assert lake.codes() == []


def test_a_delete_after_a_rebuild_explains_rows_of_all_its_batches(lake: Lake) -> None:
    """The books have a rebuild as one batch, the rows have their own."""
    lake.batch(0, 10, range(10))
    lake.swap(0, 20)
    lake.target.delete("_offset IN (3, 15)")
    result = lake.verified()
    assert (result.findings, result.target) == ((), TableRows(20, 2, 0, 0, 0, 0, 18))
