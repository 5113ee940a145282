"""`ingest verify` on a lake that deltalake wrote, without Spark: each kind of wrong is found, what is right is not (I4, I5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta.batch_commit import BatchId
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_row import LedgerRow
from ingest.runtime.errors import InvalidInput
from ingest.verify.count import TableRows
from ingest.verify.verdict import Uncommitted, verify
from tests.unit.verify.proof_lake import CONTRACT, ENGINE, Lake


def filled(lake: Lake) -> Lake:
    """Two batches of ten offsets, each with poison; the second has a duplicate and a marker's gap."""
    lake.batch(0, 10, range(8), (8, 9))
    lake.batch(10, 20, range(10, 17), (17,), duplicates=1, gap=1)
    return lake


def reset_five_times(lake: Lake) -> Lake:
    """Five seeks to the earliest after the first reading: nothing is new but what is behind it."""
    filled(lake)
    for _ in range(5):
        lake.seek(0)
        lake.batch(0, 20, (), duplicates=0, gap=1)
    return lake


def test_what_batches_put_there_balances(lake: Lake) -> None:
    said = filled(lake).verified()
    assert said.findings == ()
    assert (said.total.batches, said.total.offsets, said.total.read, said.total.gap) == (2, 20, 19, 1)
    assert (said.total.inserted, said.total.duplicate, said.total.quarantined) == (15, 1, 3)
    assert (said.target.found, said.quarantine.found, said.epochs, said.unledgered_batches) == (15, 3, 1, 0)


def test_after_five_resets_the_figures_add_up_to_all_that_the_tables_hold(lake: Lake) -> None:
    """I4: what stands of former epochs is counted as theirs, and what is read again as duplicate."""
    said = reset_five_times(lake).verified()
    assert said.findings == () and said.epochs == 6
    assert (said.target, said.quarantine) == (TableRows(15, 0, 0, 0, 0, 0, 15), TableRows(3, 0, 0, 0, 0, 0, 3))
    assert said.total.duplicate == 1 + 5 * 19


def test_what_the_ledger_lacks_comes_from_the_log(lake: Lake) -> None:
    """I7: batches, a seek with its gaps, and where an epoch begins."""
    filled(lake)
    kept = list(lake.ledger)
    lake.seek(10, gaps=[(20, 25)])
    lake.batch(10, 20, (), gap=1)
    lake.start()
    lake.batch(25, 30, range(25, 30))
    lake.ledger = kept
    said = lake.verified()
    assert (said.findings, said.unledgered_batches, said.epochs) == ((), 2, 3)
    assert said.gaps_accepted == ((0, 20, 25),)
    lake.ledger = []
    assert lake.verified().unledgered_batches == 4


def test_a_seek_that_the_ledger_lacks_is_known_with_what_stood_when_it_looked(lake: Lake) -> None:
    """I7: killed before the ledger was appended, and read on."""
    filled(lake).take(3, 4)
    kept = list(lake.ledger)
    lake.seek(0)
    lake.batch(0, 20, (3, 4), gap=1)
    lake.ledger = kept
    assert lake.codes() == []
    lake.take(5)
    assert lake.codes() == ["ROWS_DIFFER"]


@pytest.mark.parametrize("offset", [0, 16])
def test_a_row_that_is_gone_without_a_delete_is_found_in_its_batch(lake: Lake, offset: int) -> None:
    filled(lake).take(offset)
    said = lake.verified()
    (found,) = said.findings
    assert (found.code, found.epoch, found.batch, found.partition) == ("ROWS_DIFFER", 1, 2 + offset // 10, 0)
    assert (found.start_offset, found.end_offset, said.target.missing) == (offset // 10 * 10, offset // 10 * 10 + 10, 1)


def test_a_record_that_the_quarantine_lost_is_found_in_its_batch(lake: Lake) -> None:
    filled(lake)
    rows = lake.quarantine.to_pyarrow_table().slice(0, 2)
    write_deltalake(lake.places.quarantine, rows, mode="overwrite", predicate="offset >= 0")
    (found,) = lake.findings()
    assert (found.code, found.epoch) == ("QUARANTINE_DIFFERS", 1)


def test_a_row_too_many_is_found_in_its_batch(lake: Lake) -> None:
    filled(lake).rows([18], of=BatchId(1, 3))
    said = lake.verified()
    assert [found.code for found in said.findings] == ["ROWS_DIFFER"] and said.target.surplus == 1
    lake.take(18)
    lake.records([18], of=BatchId(1, 3))
    assert lake.codes() == ["QUARANTINE_DIFFERS"]


@pytest.mark.parametrize("of", [BatchId(1, 9), BatchId(7, 2)])
def test_rows_of_no_batch_are_found(lake: Lake, of: BatchId) -> None:
    filled(lake).rows([50], of=of)
    assert lake.codes() == ["ROWS_OF_NO_BATCH"]
    assert f"epoch {of.epoch} batch {of.number} partition 0: 1, offsets 50 to 50" in lake.findings()[0].what


def test_a_row_at_an_offset_outside_of_its_batch_is_found(lake: Lake) -> None:
    filled(lake).take(3)
    lake.rows([33], of=BatchId(1, 2))
    assert lake.codes() == ["ROWS_OF_NO_BATCH"]


def test_a_row_of_somebody_elses_without_provenance_is_of_no_batch(lake: Lake) -> None:
    filled(lake)
    write_deltalake(lake.places.target, pa.table({"id": pa.array([99], pa.int64())}), mode="append", schema_mode="merge")
    assert lake.codes() == ["ROWS_OF_NO_BATCH"]


def test_an_event_id_and_a_position_that_two_rows_have_are_found(lake: Lake) -> None:
    """I3."""
    filled(lake).rows([3])
    assert sorted(lake.codes()) == ["ROWS_DIFFER", "ROW_TWICE", "ROW_TWICE"]
    words = " ".join(found.what for found in lake.findings())
    assert "event id (3) has 2 rows in the target: partition 0 offset 3, partition 0 offset 3" in words
    assert "partition 0 offset 3 of topic id id has 2 rows" in words


def test_a_position_that_stands_in_quarantine_twice_is_found(lake: Lake) -> None:
    filled(lake).records([8])
    assert sorted(lake.codes()) == ["QUARANTINE_DIFFERS", "ROW_TWICE"]


def test_a_record_in_target_and_quarantine_is_found_unless_it_is_replayed(lake: Lake) -> None:
    """I4: a looser contract has made it a row."""
    filled(lake)
    lake.seek(0)
    lake.batch(0, 10, (8,), gap=0)
    lake.batch(10, 20, (), gap=1)
    assert lake.codes() == ["IN_BOTH"]
    lake.quarantine.update(updates={"state": "'replayed'"}, predicate="offset = 8")
    assert lake.codes() == []


def test_the_same_position_of_another_topic_is_another_one(lake: Lake) -> None:
    """A topic that was made again: its offsets begin anew, and the quarantine of the former one has a record there."""
    lake.batch(0, 10, range(8), (8, 9))
    lake.topic = TopicId("orders", "made-again")
    lake.seek(0)
    lake.target.update(updates={"id": "id + 100"})
    lake.batch(0, 10, range(10))
    assert lake.codes() == []
    lake.rows([8], of=BatchId(1, 2))  # of the first topic: its event id and its place in quarantine
    assert sorted(lake.codes()) == ["IN_BOTH", "ROWS_DIFFER", "ROW_TWICE"]


def test_a_batch_at_hand_or_cut_off_is_uncommitted_and_no_finding(lake: Lake) -> None:
    """I7: the quarantine comes first."""
    filled(lake).cut_off(20, 30, (21, 22))
    said = lake.verified()
    assert (said.findings, said.uncommitted) == ((), (Uncommitted(1, 4, 2),))
    assert said.quarantine == TableRows(3, 0, 0, 0, 0, 2, 5)
    lake.start()
    lake.batch(20, 25, range(23, 25), gap=3)
    said = lake.verified()
    assert (said.findings, said.uncommitted) == ((), (Uncommitted(1, 4, 2),)), "also behind a later epoch"


def test_a_record_in_quarantine_of_a_batch_that_should_be_known_is_of_no_batch(lake: Lake) -> None:
    """No run leaves a batch behind that is not the next of its epoch."""
    filled(lake)
    lake.start()
    lake.batch(20, 30, range(20, 30))
    lake.records([21], of=BatchId(1, 7))
    assert "ROWS_OF_NO_BATCH" in lake.codes()


def test_a_batch_that_only_its_transaction_id_tells_of_is_found(lake: Lake) -> None:
    """I4: the ledger was lost, and Delta has cleaned the log."""
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
def test_a_ledger_that_says_other_than_the_commit_is_found(lake: Lake, changes: dict[str, object]) -> None:
    """I4: rows are counted, the ledger is not believed."""
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


def test_a_re_read_that_is_not_done_is_pending_and_no_finding(lake: Lake) -> None:
    filled(lake).seek(0)
    assert (lake.verified().findings, lake.verified().pending) == ((), ((0, 0, 20),))
    lake.batch(0, 10, ())
    lake.start()
    assert lake.verified().pending == ((0, 10, 20),)
    lake.batch(10, 20, (), gap=1)
    assert (lake.verified().findings, lake.verified().pending) == ((), ())


def test_offsets_that_no_batch_has_read_and_nobody_accepted_are_found(lake: Lake) -> None:
    filled(lake).start()
    lake.batch(25, 30, range(25, 30))
    (found,) = lake.findings()
    assert found.code == "RANGE_MISSING" and "[20, 25)" in found.what
    lake.seek(30, gaps=[(20, 25)])
    assert lake.codes() == []


def test_rows_that_were_lost_and_came_back_with_a_re_read_balance_again(lake: Lake) -> None:
    """The batch that lost them is held to what stood when it was read again; more must not go."""
    filled(lake).take(3, 4)
    assert lake.codes() == ["ROWS_DIFFER"]
    lake.seek(0)
    assert lake.codes() == ["ROWS_DIFFER"], "they are still missing"
    lake.batch(0, 10, (3, 4))
    said = lake.verified()
    assert (said.findings, said.target.replaced, said.target.found) == ((), 2, 15)
    lake.batch(10, 20, (), gap=1)
    assert lake.codes() == []
    lake.take(5)
    (found,) = lake.findings()
    assert (found.code, found.epoch, found.batch) == ("ROWS_DIFFER", 1, 2)
    assert "had 8 rows and quarantined records when it was read again or left out" in found.what
    lake.seek(0)
    lake.batch(0, 20, (5,), gap=1)
    assert lake.codes() == []


def test_a_batch_that_was_read_again_in_part_is_still_held_to_all_of_it(lake: Lake) -> None:
    filled(lake).take(3, 7)
    lake.seek(6)
    lake.batch(6, 20, (7,), gap=1)
    assert lake.codes() == ["ROWS_DIFFER"]
    lake.seek(0)
    lake.batch(0, 20, (3,), gap=1)
    assert lake.codes() == []


def test_what_is_lost_after_the_first_of_two_seeks_is_missed_until_the_second_has_read_it(lake: Lake) -> None:
    """I4: that later batches cover it proves nothing: they came before the loss."""
    filled(lake).seek(0)
    lake.batch(0, 20, (), gap=1)
    lake.take(4)
    lake.seek(0)
    assert lake.codes() == ["ROWS_DIFFER"]
    lake.batch(0, 20, (4,), gap=1)
    assert lake.codes() == []


def test_records_that_the_quarantine_lost_and_a_re_read_has_put_there_again_balance(lake: Lake) -> None:
    filled(lake)
    rows = lake.quarantine.to_pyarrow_table()
    write_deltalake(lake.places.quarantine, rows.filter(pa.compute.equal(rows["offset"], 17)), mode="overwrite", predicate="offset >= 0")
    assert lake.codes() == ["QUARANTINE_DIFFERS"]
    lake.seek(0)
    lake.batch(0, 20, (), (8, 9), gap=1)
    said = lake.verified()
    assert (said.findings, said.quarantine) == ((), TableRows(5, 0, 2, 0, 0, 0, 3))


def test_what_a_restore_took_is_missing_batch_by_batch_until_it_was_read_again(lake: Lake) -> None:
    """Every batch in the log counts, RESTOREd away or not."""
    lake.batch(0, 10, range(10))
    version = lake.target.version()
    lake.batch(10, 20, range(10, 20))
    lake.batch(20, 30, range(20, 30))
    lake.target.restore(version)
    assert [(found.code, found.batch) for found in lake.findings()] == [("ROWS_DIFFER", 3), ("ROWS_DIFFER", 4)]
    lake.seek(10)
    lake.batch(10, 30, range(10, 30))
    said = lake.verified()
    assert (said.findings, said.target) == ((), TableRows(50, 0, 20, 0, 0, 0, 30))


def test_what_a_seek_left_out_for_good_is_no_finding_but_a_line(lake: Lake) -> None:
    """Kafka has expired what the table lost, and somebody said that it may."""
    filled(lake).take(3)
    lake.seek(20, gaps=[(0, 10)])
    assert (lake.codes(), lake.verified().gaps_accepted) == ([], ((0, 0, 10),))
    lake.batch(20, 30, range(20, 30))
    assert lake.verified().target.replaced == 1
    kept = list(lake.ledger)
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"], "it stood when the seek looked"
    lake.ledger = [replace(row, stood=None) for row in kept]
    assert lake.codes() == [], "and if nobody counted that, nothing of it is missed"
    lake.take(16)
    assert lake.codes() == ["ROWS_DIFFER"], "what was not left out counts"


def test_partitions_that_came_later_are_told_apart(lake: Lake) -> None:
    filled(lake).batch(0, 5, range(100, 105), partition=3)
    assert "ROWS_OF_NO_BATCH" in lake.codes(), "offsets outside of the batch"


def test_a_column_that_somebody_added_to_the_ledger_is_none_of_ours(lake: Lake) -> None:
    assert filled(lake).codes() == []
    ledger = DeltaTable(lake.places.ledger).to_pyarrow_table()
    write_deltalake(
        lake.places.ledger, ledger.append_column("note", pa.array(["audited"] * len(ledger))), mode="overwrite", schema_mode="overwrite"
    )
    assert verify(ENGINE, CONTRACT, lake.places).findings == ()


def test_a_missing_table_is_named(lake: Lake) -> None:
    with pytest.raises(InvalidInput, match="TABLE_MISSING"):
        verify(ENGINE, CONTRACT, lake.places)


def test_a_time_in_the_ledger_is_no_matter_of_the_balance(lake: Lake) -> None:
    """Fault 28: the clock."""
    filled(lake)
    lake.ledger = [replace(row, committed_at=row.committed_at - timedelta(days=1)) for row in lake.ledger]
    assert lake.codes() == []
