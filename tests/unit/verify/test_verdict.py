"""`ingest verify` on a lake that deltalake wrote, without Spark: it finds each kind of error, and nothing in a correct table (I4, I5)."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Schema, write_deltalake

from ingest.cli.app import main
from ingest.delta.batch_commit import BatchId
from ingest.delta.delta_sql import Unreadable
from ingest.delta.posting import Key, Posting
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.runtime import databricks, spark
from ingest.runtime.errors import InvalidInput
from ingest.verify.count import TableRows
from ingest.verify.verdict import Uncommitted, verify
from tests.unit.verify.proof_lake import CONTRACT, ENGINE, TOPIC, Lake


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
        lake.batch(0, 20, (), gap=1)
    return lake


def test_correct_batches_balance(lake: Lake) -> None:
    result = filled(lake).verified()
    assert result.findings == ()
    assert (result.total.batches, result.total.offsets, result.total.read, result.total.gap) == (2, 20, 19, 1)
    assert (result.total.inserted, result.total.duplicate, result.total.quarantined) == (15, 1, 3)
    assert (result.target.found, result.quarantine.found, result.epochs, result.unledgered) == (15, 3, 1, 0)


def test_after_five_resets_the_counts_add_up_to_all_rows_of_the_tables(lake: Lake) -> None:
    """I4: rows count for the epoch that wrote them, and records that are read again are present."""
    result = reset_five_times(lake).verified()
    assert result.findings == () and result.epochs == 6
    assert (result.target, result.quarantine) == (TableRows(15, 0, 0, 0, 0, 0, 15), TableRows(3, 0, 0, 0, 0, 0, 3))
    assert (result.total.present, result.total.duplicate) == (5 * 19, 1)


def test_statements_that_the_ledger_lacks_are_read_from_the_logs(lake: Lake) -> None:
    """I7: batches, and a seek with its gaps."""
    filled(lake).keep()
    lake.seek(10, gaps=[(20, 25)])
    lake.batch(10, 20, (), gap=1)
    lake.start()
    lake.batch(25, 30, range(25, 30))
    result = lake.verified(keep=False)
    assert (result.findings, result.unledgered, result.epochs) == ((), 3, 3)
    assert result.gaps_accepted == (OffsetRange(0, 20, 25),)


def test_a_deleted_ledger_changes_no_verdict(lake: Lake) -> None:
    """I7."""
    filled(lake).take(3)
    before = lake.verified()
    lake.seek(0)
    shutil.rmtree(lake.places.ledger)
    lake.batch(0, 10, (3,))
    lake.take(4)
    found = lake.verified()
    assert [each.code for each in before.findings] == [each.code for each in found.findings] == ["ROWS_DIFFER"]
    assert (found.target, found.unledgered) == (TableRows(16, 0, 1, 1, 0, 0, 14), 0)


@pytest.mark.parametrize("offset", [0, 16])
def test_a_row_that_disappears_without_a_delete_is_found_in_its_batch(lake: Lake, offset: int) -> None:
    filled(lake).take(offset)
    result = lake.verified()
    (found,) = result.findings
    assert (found.code, found.epoch, found.batch, found.partition) == ("ROWS_DIFFER", 1, 2 + offset // 10, 0)
    assert (found.start_offset, found.end_offset, result.target.missing) == (offset // 10 * 10, offset // 10 * 10 + 10, 1)


def test_a_record_that_the_quarantine_lost_is_found_in_its_batch(lake: Lake) -> None:
    filled(lake)
    lake.take_records(17)
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
    assert f"epoch {of.epoch} batch {of.number} partition 0: 1" in lake.findings()[0].what


@pytest.mark.parametrize("forged", [33, 3], ids=["another offset", "another event id at the same position"])
def test_a_loss_behind_a_forged_row_of_the_same_batch_is_found(lake: Lake, forged: int) -> None:
    """I4: the number of rows is right, and in the second case the offsets are too."""
    filled(lake).take(3)
    lake.shift = 100 if forged == 3 else 0
    lake.rows([forged], of=BatchId(1, 2))
    (found,) = lake.findings()
    assert (found.code, found.batch) == ("ROWS_DIFFER", 2)
    assert found.what.startswith("has other rows in the target than it put there")
    assert ("(missing [3, 4); too much [33, 34))" in found.what) == (forged == 33)


def test_a_quarantined_record_behind_a_forged_one_is_found(lake: Lake) -> None:
    filled(lake).take_records(8)
    lake.records([7], of=BatchId(1, 2))
    assert sorted(lake.codes()) == ["IN_BOTH", "QUARANTINE_DIFFERS"]


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
    assert "partition 0 offset 3 has 2 rows" in words


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
    lake.topic, lake.shift = TopicId("orders", "recreated"), 100
    lake.seek(0)
    lake.batch(0, 10, range(10))
    assert lake.codes() == []
    lake.topic = TOPIC
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
    lake.keep()
    (Path(lake.places.target) / f"_delta_log/{version:020}.json").unlink()
    assert lake.codes(keep=False) == []
    lake.ledger.delete("batch = 3")
    assert sorted(lake.codes(keep=False)) == ["BATCH_MISSING", "ROWS_OF_NO_BATCH"]


@pytest.mark.parametrize(
    "changes",
    [
        {"end_offset": "11"},
        {"version": "0"},
        {"target_rows": "7", "present": "1"},
        {"target_rows": "9"},
        {"target_hash": "7"},
        {"quarantine_rows": "1", "duplicate": "1"},
        {"topic_id": "'other'"},
    ],
    ids=str,
)
def test_a_ledger_that_differs_from_the_commit_is_found(lake: Lake, changes: dict[str, str]) -> None:
    """I4: verify adds up rows and does not trust the ledger."""
    filled(lake).keep()
    lake.ledger.update(updates=changes, predicate="batch = 2")
    assert "LEDGER_DIFFERS" in lake.codes()


def test_an_accepted_gap_that_no_seek_accepted_is_found(lake: Lake) -> None:
    lake.seek(0)
    lake.batch(0, 10, range(10))
    lake.keep()
    (seek,) = lake.books().of("seek")
    row = replace(seek, posting=Posting(Key(2, 1, 0, 0), "gap", OffsetRange(0, 20, 25))).row()
    write_deltalake(lake.places.ledger, pa.Table.from_pylist([row], lake.ledger.to_pyarrow_table().schema), mode="append")
    assert lake.codes() == ["LEDGER_DIFFERS"]


def test_an_unfinished_re_read_is_pending_and_not_a_finding(lake: Lake) -> None:
    filled(lake).seek(0)
    assert (lake.verified().findings, lake.verified().pending) == ((), (OffsetRange(0, 0, 20),))
    lake.batch(0, 10, ())
    lake.start()
    assert lake.verified().pending == (OffsetRange(0, 10, 20),)
    lake.batch(10, 20, (), gap=1)
    assert (lake.verified().findings, lake.verified().pending) == ((), ())


def test_unread_offsets_without_an_accepted_gap_are_found(lake: Lake) -> None:
    filled(lake).start()
    lake.batch(25, 30, range(25, 30))
    (found,) = lake.findings()
    assert found.code == "RANGE_MISSING" and "[20, 25)" in found.what
    lake.seek(30, gaps=[(20, 25)])
    assert lake.codes() == []


def test_lost_rows_that_a_seek_wrote_off_and_a_re_read_inserted_again_balance(lake: Lake) -> None:
    """I4: the seek takes them out of the books, and the rows that come back belong to later batches. Any further loss is found."""
    filled(lake).take(3, 4)
    assert lake.codes() == ["ROWS_DIFFER"]
    lake.seek(0)
    result = lake.verified()
    assert (result.findings, result.target.written_off, result.pending) == ((), 2, (OffsetRange(0, 0, 20),)), "they are yet to be re-read"
    lake.batch(0, 10, (3, 4))
    result = lake.verified()
    assert (result.findings, result.target) == ((), TableRows(17, 0, 2, 0, 0, 0, 15))
    lake.batch(10, 20, (), gap=1)
    assert lake.codes() == []
    lake.take(5)
    (found,) = lake.findings()
    assert (found.code, found.epoch, found.batch) == ("ROWS_DIFFER", 1, 2)
    lake.seek(0)
    lake.batch(0, 20, (5,), gap=1)
    assert lake.codes() == []


def test_a_row_that_was_written_off_and_comes_back_is_too_many(lake: Lake) -> None:
    """I4: a RESTORE after the seek brings it back beside the row that the re-read inserted."""
    filled(lake).take(3)
    lake.seek(0)
    lake.rows([3], of=BatchId(1, 2))
    result = lake.verified()
    assert ([each.code for each in result.findings], result.target.surplus) == (["ROWS_DIFFER"], 1)


def test_a_loss_between_two_seeks_is_written_off_by_the_second_one(lake: Lake) -> None:
    """I4: later batches that cover the offset prove nothing, because they came before the loss."""
    filled(lake).seek(0)
    lake.batch(0, 20, (), gap=1)
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"]
    lake.seek(0)
    lake.batch(0, 20, (4,), gap=1)
    assert lake.verified().target == TableRows(16, 0, 1, 0, 0, 0, 15)


def test_lost_quarantined_records_that_a_re_read_inserted_again_balance(lake: Lake) -> None:
    filled(lake).take_records(8, 9)
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
    assert (lake.codes(), lake.verified().gaps_accepted) == ([], (OffsetRange(0, 0, 10),))
    lake.batch(20, 30, range(20, 30))
    assert lake.verified().target.written_off == 1
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"], "the row existed at the seek"


def test_the_same_offsets_in_another_partition_are_other_rows(lake: Lake) -> None:
    """I4: an UPDATE by hand moved a row to another partition."""
    filled(lake)
    lake.shift = 100
    lake.batch(0, 5, range(5), partition=3)
    assert lake.codes() == []
    lake.target.update(updates={"_partition": "3 - _partition"}, predicate="_offset = 4")
    assert [(each.code, each.partition) for each in lake.findings()] == [
        ("ROWS_DIFFER", 0),
        ("ROWS_DIFFER", 3),
        ("ROWS_OF_NO_BATCH", None),
    ]


def test_a_column_that_a_user_added_to_the_ledger_is_ignored(lake: Lake) -> None:
    assert filled(lake).codes() == []
    lake.ledger.alter.add_columns(Schema.from_arrow(pa.schema([pa.field("note", pa.string())])).fields)
    assert verify(ENGINE, CONTRACT, lake.places).findings == ()


def test_a_missing_table_is_refused_by_name(lake: Lake) -> None:
    with pytest.raises(InvalidInput, match="TABLE_MISSING"):
        verify(ENGINE, CONTRACT, lake.places)


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


def test_a_gap_accepted_before_a_rebuild_stays_in_the_report_as_far_as_the_rebuild_did_not_read_it(lake: Lake) -> None:
    """I4: nothing else is in the books about these offsets, and Kafka no longer has them."""
    lake.batch(0, 10, range(10))
    lake.seek(20, gaps=[(10, 20)])
    lake.batch(20, 30, range(20, 30))
    assert lake.verified().gaps_accepted == (OffsetRange(0, 10, 20),)
    lake.swap(15, 30)
    verified = lake.verified()
    assert (verified.rebuilt, verified.findings, verified.gaps_accepted) == (lake.epoch - 1, (), (OffsetRange(0, 10, 15),))
    assert (verified.total.inserted, verified.target) == (15, TableRows(15, 0, 0, 0, 0, 0, 15))
    lake.batch(30, 40, range(30, 40))
    lake.take(16)
    (found,) = lake.findings()
    assert (found.code, found.epoch, found.batch) == ("ROWS_DIFFER", verified.rebuilt, 0), "of the batches of a rebuild nobody knows more"


def test_a_statement_that_another_engine_repeats_counts_once(lake: Lake) -> None:
    """I1: a fenced statement is ours only with its transaction id. A removal has none, so the first commit with its metadata counts."""
    filled(lake).keep()
    lake.erase(3)
    metadata = lake.log().commit(lake.target.version()).user_metadata
    properties = CommitProperties(custom_metadata={"userMetadata": str(metadata)})
    lake.target.optimize.compact(commit_properties=properties)
    assert lake.verified(keep=False).target == TableRows(15, 0, 0, 0, 0, 0, 14, 1)
    lake.keep()
    assert lake.verified().target == TableRows(15, 0, 0, 0, 0, 0, 14, 1)


@pytest.mark.parametrize("changes", [{"start_offset": "20"}, {"why": "'batches'"}, {"end_offset": "NULL"}], ids=str)
def test_a_line_that_no_statement_can_have_written_is_refused(lake: Lake, changes: dict[str, str]) -> None:
    filled(lake).keep()
    lake.ledger.update(updates=changes, predicate="batch = 2")
    with pytest.raises(Unreadable, match="no statement of ours"):
        lake.verified()


@pytest.mark.parametrize("table", ["target", "quarantine"])
def test_a_copy_of_an_old_version_in_a_tables_place_is_found(lake: Lake, table: str) -> None:
    """I4: the copy agrees with its own log, but the ledger has a later batch."""
    path = f"{lake.places.root}/{table}"
    lake.batch(0, 10, range(8), (8, 9))
    shutil.copytree(path, f"{lake.places.root}/copy")
    lake.batch(10, 20, range(10, 18), (18, 19))
    assert lake.codes() == []
    shutil.rmtree(path)
    Path(lake.places.root, "copy").rename(path)
    assert lake.codes(keep=False) == ["ROWS_DIFFER" if table == "target" else "QUARANTINE_DIFFERS"]
