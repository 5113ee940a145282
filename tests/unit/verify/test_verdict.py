"""`ingest verify` on a lake that deltalake wrote, without Spark: it finds each kind of error, and nothing in a correct table (I4, I5)."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.cli.app import main
from ingest.delta.batch_commit import BatchId
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_row import LedgerRow
from ingest.runtime import databricks, spark
from ingest.runtime.errors import InvalidInput
from ingest.verify.count import TableRows
from ingest.verify.verdict import Uncommitted, verify
from tests.unit.verify.proof_lake import CONTRACT, ENGINE, Lake


def filled(lake: Lake) -> Lake:
    """Two batches of ten offsets, each with poison. The second has a duplicate and a gap for a transaction marker."""
    lake.batch(0, 10, range(8), (8, 9))
    lake.batch(10, 20, range(10, 17), (17,), duplicates=1, gap=1)
    return lake


def reset_five_times(lake: Lake) -> Lake:
    """Five seeks to the earliest offset after the first read; none of them finds a new record."""
    filled(lake)
    for _ in range(5):
        lake.seek(0)
        lake.batch(0, 20, (), duplicates=0, gap=1)
    return lake


def test_correct_batches_balance(lake: Lake) -> None:
    result = filled(lake).verified()
    assert result.findings == ()
    assert (result.total.batches, result.total.offsets, result.total.read, result.total.gap) == (2, 20, 19, 1)
    assert (result.total.inserted, result.total.duplicate, result.total.quarantined) == (15, 1, 3)
    assert (result.target.found, result.quarantine.found, result.epochs, result.unledgered_batches) == (15, 3, 1, 0)


def test_after_five_resets_the_counts_add_up_to_all_rows_of_the_tables(lake: Lake) -> None:
    """I4: existing rows count for the epoch that wrote them, and re-read records count as duplicates."""
    result = reset_five_times(lake).verified()
    assert result.findings == () and result.epochs == 6
    assert (result.target, result.quarantine) == (TableRows(15, 0, 0, 0, 0, 0, 15), TableRows(3, 0, 0, 0, 0, 0, 3))
    assert result.total.duplicate == 1 + 5 * 19


def test_batches_that_the_ledger_lacks_are_read_from_the_log(lake: Lake) -> None:
    """I7: batches, a seek with its gaps, and the starting offsets of an epoch."""
    filled(lake)
    kept = list(lake.ledger)
    lake.seek(10, gaps=[(20, 25)])
    lake.batch(10, 20, (), gap=1)
    lake.start()
    lake.batch(25, 30, range(25, 30))
    lake.ledger = kept
    result = lake.verified()
    assert (result.findings, result.unledgered_batches, result.epochs) == ((), 2, 3)
    assert result.gaps_accepted == ((0, 20, 25),)
    lake.ledger = []
    assert lake.verified().unledgered_batches == 4


def test_a_seek_missing_from_the_ledger_is_known_with_the_rows_that_existed_then(lake: Lake) -> None:
    """I7: the run was killed before it appended to the ledger, and a later one continued."""
    filled(lake).take(3, 4)
    kept = list(lake.ledger)
    lake.seek(0)
    lake.batch(0, 20, (3, 4), gap=1)
    lake.ledger = kept
    assert lake.codes() == []
    lake.take(5)
    assert lake.codes() == ["ROWS_DIFFER"]


@pytest.mark.parametrize("offset", [0, 16])
def test_a_row_that_disappears_without_a_delete_is_found_in_its_batch(lake: Lake, offset: int) -> None:
    filled(lake).take(offset)
    result = lake.verified()
    (found,) = result.findings
    assert (found.code, found.epoch, found.batch, found.partition) == ("ROWS_DIFFER", 1, 2 + offset // 10, 0)
    assert (found.start_offset, found.end_offset, result.target.missing) == (offset // 10 * 10, offset // 10 * 10 + 10, 1)


def test_a_record_that_the_quarantine_lost_is_found_in_its_batch(lake: Lake) -> None:
    filled(lake)
    rows = lake.quarantine.to_pyarrow_table().slice(0, 2)
    write_deltalake(lake.places.quarantine, rows, mode="overwrite", predicate="offset >= 0")
    (found,) = lake.findings()
    assert (found.code, found.epoch) == ("QUARANTINE_DIFFERS", 1)


def test_an_extra_row_is_found_in_its_batch(lake: Lake) -> None:
    filled(lake).rows([18], of=BatchId(1, 3))
    result = lake.verified()
    assert [found.code for found in result.findings] == ["ROWS_DIFFER"] and result.target.surplus == 1
    lake.take(18)
    lake.records([18], of=BatchId(1, 3))
    assert lake.codes() == ["QUARANTINE_DIFFERS"]


@pytest.mark.parametrize("of", [BatchId(1, 9), BatchId(7, 2)])
def test_rows_of_an_unknown_batch_are_found(lake: Lake, of: BatchId) -> None:
    filled(lake).rows([50], of=of)
    assert lake.codes() == ["ROWS_OF_NO_BATCH"]
    assert f"epoch {of.epoch} batch {of.number} partition 0: 1, offsets 50 to 50" in lake.findings()[0].what


def test_a_row_at_an_offset_outside_of_its_batch_is_reported(lake: Lake) -> None:
    filled(lake).take(3)
    lake.rows([33], of=BatchId(1, 2))
    assert lake.codes() == ["ROWS_OF_NO_BATCH"]


def test_a_foreign_row_without_provenance_belongs_to_no_batch(lake: Lake) -> None:
    filled(lake)
    write_deltalake(lake.places.target, pa.table({"id": pa.array([99], pa.int64())}), mode="append", schema_mode="merge")
    assert lake.codes() == ["ROWS_OF_NO_BATCH"]


def test_a_duplicate_event_id_and_a_duplicate_position_are_found(lake: Lake) -> None:
    """I3."""
    filled(lake).rows([3])
    assert sorted(lake.codes()) == ["ROWS_DIFFER", "ROW_TWICE", "ROW_TWICE"]
    words = " ".join(found.what for found in lake.findings())
    assert "2 rows in the target have the same event id: partition 0 offset 3, partition 0 offset 3" in words
    assert "partition 0 offset 3 of topic id id has 2 rows" in words


def test_a_position_that_is_in_quarantine_twice_is_found(lake: Lake) -> None:
    filled(lake).records([8])
    assert sorted(lake.codes()) == ["QUARANTINE_DIFFERS", "ROW_TWICE"]


def test_a_record_in_target_and_quarantine_is_found_unless_it_is_replayed(lake: Lake) -> None:
    """I4: a re-read under a looser contract turned the record into a row."""
    filled(lake)
    lake.seek(0)
    lake.batch(0, 10, (8,), gap=0)
    lake.batch(10, 20, (), gap=1)
    assert lake.codes() == ["IN_BOTH"]
    lake.quarantine.update(updates={"state": "'replayed'"}, predicate="offset = 8")
    assert lake.codes() == []


def test_the_same_position_in_a_recreated_topic_is_a_different_position(lake: Lake) -> None:
    """A recreated topic starts at offset 0 again, and the quarantine has a record of the former topic at the same position."""
    lake.batch(0, 10, range(8), (8, 9))
    lake.topic = TopicId("orders", "recreated")
    lake.seek(0)
    lake.target.update(updates={"id": "id + 100"})
    lake.batch(0, 10, range(10))
    assert lake.codes() == []
    lake.rows([8], of=BatchId(1, 2))  # of the former topic: its event id and its position in quarantine
    assert sorted(lake.codes()) == ["IN_BOTH", "ROWS_DIFFER", "ROW_TWICE"]


def test_a_batch_in_progress_or_cut_off_is_uncommitted_and_not_a_finding(lake: Lake) -> None:
    """I7: a batch commits to the quarantine first."""
    filled(lake).cut_off(20, 30, (21, 22))
    result = lake.verified()
    assert (result.findings, result.uncommitted) == ((), (Uncommitted(1, 4, 2),))
    assert result.quarantine == TableRows(3, 0, 0, 0, 0, 2, 5)
    lake.start()
    lake.batch(20, 25, range(23, 25), gap=3)
    result = lake.verified()
    assert (result.findings, result.uncommitted) == ((), (Uncommitted(1, 4, 2),)), "also if a later epoch follows"


def test_a_quarantined_record_of_an_impossible_batch_belongs_to_no_batch(lake: Lake) -> None:
    """A run that is cut off can only leave the next batch of its epoch."""
    filled(lake)
    lake.start()
    lake.batch(20, 30, range(20, 30))
    lake.records([21], of=BatchId(1, 7))
    assert "ROWS_OF_NO_BATCH" in lake.codes()


def test_a_batch_known_only_by_its_transaction_id_is_missing(lake: Lake) -> None:
    """I4: the ledger lost the batch, and Delta has cleaned the log."""
    lake.batch(0, 10, range(10))
    lake.batch(10, 20, range(10, 20))
    lake.target.create_checkpoint()
    version = lake.target.version()
    (Path(lake.places.target) / f"_delta_log/{version:020}.json").unlink()
    assert lake.codes() == []
    lake.ledger = [row for row in lake.ledger if row.batch != 3]
    assert sorted(lake.codes()) == ["BATCH_MISSING", "ROWS_OF_NO_BATCH"]


@pytest.mark.parametrize(
    "changes",
    [
        {"end_offset": 11, "gap": 1},
        {"target_version": 0},
        {"inserted": 7, "duplicate": 1},
        {"quarantined": 1, "duplicate": 1},
        {"topic_id": "other"},
    ],
)
def test_a_ledger_that_differs_from_the_commit_is_found(lake: Lake, changes: dict[str, object]) -> None:
    """I4: verify counts rows and does not trust the ledger."""
    filled(lake)
    lake.ledger = [_changed(row, changes) if (row.kind, row.batch) == ("batch", 2) else row for row in lake.ledger]
    assert "LEDGER_DIFFERS" in lake.codes()


def _changed(row: LedgerRow, changes: dict[str, object]) -> LedgerRow:
    return replace(row, **changes)  # type: ignore[arg-type]


def test_an_accepted_gap_that_no_seek_accepted_is_found(lake: Lake) -> None:
    lake.seek(0)
    lake.batch(0, 10, range(10))
    begin = next(row for row in lake.ledger if row.kind == "epoch")
    lake.ledger.append(replace(begin, kind="gap_accepted", start_offset=20, end_offset=25, gap=5))
    assert lake.codes() == ["LEDGER_DIFFERS"]


def test_an_unfinished_re_read_is_pending_and_not_a_finding(lake: Lake) -> None:
    filled(lake).seek(0)
    assert (lake.verified().findings, lake.verified().pending) == ((), ((0, 0, 20),))
    lake.batch(0, 10, ())
    lake.start()
    assert lake.verified().pending == ((0, 10, 20),)
    lake.batch(10, 20, (), gap=1)
    assert (lake.verified().findings, lake.verified().pending) == ((), ())


def test_unread_offsets_without_an_accepted_gap_are_found(lake: Lake) -> None:
    filled(lake).start()
    lake.batch(25, 30, range(25, 30))
    (found,) = lake.findings()
    assert found.code == "RANGE_MISSING" and "[20, 25)" in found.what
    lake.seek(30, gaps=[(20, 25)])
    assert lake.codes() == []


def test_lost_rows_that_a_re_read_inserted_again_balance(lake: Lake) -> None:
    """The batch is checked against the rows that existed at the re-read; any further loss is found."""
    filled(lake).take(3, 4)
    assert lake.codes() == ["ROWS_DIFFER"]
    lake.seek(0)
    assert lake.codes() == ["ROWS_DIFFER"], "the rows are still missing"
    lake.batch(0, 10, (3, 4))
    result = lake.verified()
    assert (result.findings, result.target.replaced, result.target.found) == ((), 2, 15)
    lake.batch(10, 20, (), gap=1)
    assert lake.codes() == []
    lake.take(5)
    (found,) = lake.findings()
    assert (found.code, found.epoch, found.batch) == ("ROWS_DIFFER", 1, 2)
    assert "had 8 rows and quarantined records when it was read again or left out" in found.what
    lake.seek(0)
    lake.batch(0, 20, (5,), gap=1)
    assert lake.codes() == []


def test_a_partly_re_read_batch_must_still_have_all_its_rows(lake: Lake) -> None:
    filled(lake).take(3, 7)
    lake.seek(6)
    lake.batch(6, 20, (7,), gap=1)
    assert lake.codes() == ["ROWS_DIFFER"]
    lake.seek(0)
    lake.batch(0, 20, (3,), gap=1)
    assert lake.codes() == []


def test_a_loss_between_two_seeks_is_found_until_the_second_one_has_re_read_it(lake: Lake) -> None:
    """I4: later batches that cover the offset prove nothing, because they came before the loss."""
    filled(lake).seek(0)
    lake.batch(0, 20, (), gap=1)
    lake.take(4)
    lake.seek(0)
    assert lake.codes() == ["ROWS_DIFFER"]
    lake.batch(0, 20, (4,), gap=1)
    assert lake.codes() == []


def test_lost_quarantined_records_that_a_re_read_inserted_again_balance(lake: Lake) -> None:
    filled(lake)
    rows = lake.quarantine.to_pyarrow_table()
    write_deltalake(lake.places.quarantine, rows.filter(pa.compute.equal(rows["offset"], 17)), mode="overwrite", predicate="offset >= 0")
    assert lake.codes() == ["QUARANTINE_DIFFERS"]
    lake.seek(0)
    lake.batch(0, 20, (), (8, 9), gap=1)
    result = lake.verified()
    assert (result.findings, result.quarantine) == ((), TableRows(5, 0, 2, 0, 0, 0, 3))


def test_rows_that_a_restore_removed_are_missing_per_batch_until_they_are_re_read(lake: Lake) -> None:
    """Every batch in the log counts, even if a RESTORE removed its rows."""
    lake.batch(0, 10, range(10))
    version = lake.target.version()
    lake.batch(10, 20, range(10, 20))
    lake.batch(20, 30, range(20, 30))
    lake.target.restore(version)
    assert [(found.code, found.batch) for found in lake.findings()] == [("ROWS_DIFFER", 3), ("ROWS_DIFFER", 4)]
    lake.seek(10)
    lake.batch(10, 30, range(10, 30))
    result = lake.verified()
    assert (result.findings, result.target) == ((), TableRows(50, 0, 20, 0, 0, 0, 30))


def test_offsets_that_a_seek_skipped_are_listed_as_accepted_gaps_and_not_a_finding(lake: Lake) -> None:
    """Kafka has expired the lost records, and a user accepted the gap."""
    filled(lake).take(3)
    lake.seek(20, gaps=[(0, 10)])
    assert (lake.codes(), lake.verified().gaps_accepted) == ([], ((0, 0, 10),))
    lake.batch(20, 30, range(20, 30))
    assert lake.verified().target.replaced == 1
    kept = list(lake.ledger)
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"], "the row existed at the seek"
    lake.ledger = [replace(row, stood=None) for row in kept]
    assert lake.codes() == [], "without a count of existing rows at the seek, no loss is found"
    lake.take(16)
    assert lake.codes() == ["ROWS_DIFFER"], "offsets that the seek did not skip still count"


def test_an_added_partition_is_checked_separately(lake: Lake) -> None:
    filled(lake).batch(0, 5, range(100, 105), partition=3)
    assert "ROWS_OF_NO_BATCH" in lake.codes(), "the offsets are outside of the batch"


def test_a_column_that_a_user_added_to_the_ledger_is_ignored(lake: Lake) -> None:
    assert filled(lake).codes() == []
    ledger = DeltaTable(lake.places.ledger).to_pyarrow_table()
    write_deltalake(
        lake.places.ledger, ledger.append_column("note", pa.array(["audited"] * len(ledger))), mode="overwrite", schema_mode="overwrite"
    )
    assert verify(ENGINE, CONTRACT, lake.places).findings == ()


def test_a_missing_table_is_refused_by_name(lake: Lake) -> None:
    with pytest.raises(InvalidInput, match="TABLE_MISSING"):
        verify(ENGINE, CONTRACT, lake.places)


def test_times_in_the_ledger_do_not_affect_the_balance(lake: Lake) -> None:
    """Fault 28: the clock is wrong."""
    filled(lake)
    lake.ledger = [replace(row, committed_at=row.committed_at - timedelta(days=1)) for row in lake.ledger]
    assert lake.codes() == []


def test_on_databricks_a_volume_is_verified_as_files_without_spark(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle's job verify runs on serverless compute, which has no JVM."""
    filled(lake).verified()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/orders.yml").write_text(CONTRACT.to_json(), encoding="utf-8")
    monkeypatch.setenv(databricks.VARIABLE, "client.4.9")
    places = ["--lake", f"file:{lake.places.lake}", "--checkpoints", f"file:{lake.places.checkpoints}"]
    monkeypatch.setattr(sys, "argv", ["ingest", "verify", "--project", str(tmp_path), *places])
    monkeypatch.setattr(spark, "start", lambda *_: pytest.fail("verify started Spark"))
    main()  # exit code 0 is a return
    lake.take(3)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1


def test_a_gap_accepted_before_a_rebuild_stays_in_the_report_as_far_as_the_rebuild_did_not_read_it(tmp_path: Path) -> None:
    """I4: nothing else is in the ledger about these offsets, and Kafka no longer has them."""
    lake = Lake(tmp_path)
    lake.batch(0, 10, range(10))
    lake.seek(20, gaps=[(10, 20)])
    lake.batch(20, 30, range(20, 30))
    assert lake.verified().gaps_accepted == ((0, 10, 20),)
    lake.seek(15)
    lake.ledger = [replace(row, why=f"rebuild:{lake.epoch}") if row.epoch == lake.epoch else row for row in lake.ledger]
    lake.take(*range(30))
    lake.batch(15, 30, range(15, 30))
    verified = lake.verified()
    assert (verified.rebuilt, verified.findings, verified.gaps_accepted) == (lake.epoch, (), ((0, 10, 15),))
