"""`ingest verify` on a lake that deltalake wrote, without Spark: two checkpoints that have read the same offsets (I4, I5)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.delta_sql import DataFusion
from ingest.files import LocalFiles
from ingest.prove import taken
from ingest.prove.verify import verify
from ingest.stream.binding import Binding, FormerEpoch, Rebase
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_row import project_rebase
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId, OffsetRange
from tests.unit.proof_lake import AT, CONTRACT, FIRST, SECOND, Lake


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
    lake.take(5)
    assert set(lake.codes()) == {"RECORDS_MISSING"}


def test_a_record_that_was_found_standing_and_stands_no_more_is_found(behind: Lake) -> None:
    """I4: no batch of the ledger has put it there, so that no sum tells of it."""
    assert behind.codes() == []
    DeltaTable(behind.places.quarantine).delete("offset = 1")
    assert behind.codes() == ["RECORDS_MISSING"]


def test_a_column_that_somebody_added_to_the_ledger_is_none_of_ours(read_once: Lake) -> None:
    assert read_once.codes() == []
    rows = pa.Table.from_pylist([asdict(each) | {"note": "audited"} for each in read_once.ledger])
    write_deltalake(read_once.places.ledger, rows, mode="overwrite", schema_mode="overwrite")
    assert verify(DataFusion(), CONTRACT, read_once.places).findings == ()


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


def test_a_copy_of_a_lost_row_that_another_partition_has_put_in_is_no_loss(tmp_path: Path) -> None:
    """The event stands: to the checkpoint that has read all again the first copy is a duplicate."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(9), (), losers=1)
    one.take(4)
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 10, (), (), losers=2)
    assert one.codes() == []
    one.take(5)
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


def test_a_row_that_is_lost_is_found_also_where_a_record_that_kafka_has_compacted_stands_in_its_place(tmp_path: Path) -> None:
    """I4: by number nothing is missing; which positions a commit took is known."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, (0, *range(2, 10)), (1,))
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 12, (10, 11), (), gap=1)
    one.take(11)
    assert one.codes() == ["RECORDS_MISSING"]
    one.rows([11], None)
    assert one.codes() == []


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


def test_a_record_that_a_batch_has_put_into_quarantine_is_told_by_its_batch_whatever_stands_in_its_place(tmp_path: Path) -> None:
    """I4: Kafka has compacted the record that was refused before, which stands there all the same."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, (0, *range(2, 10)), (1,))
    one.rebase([("q1", 0, 10)], "q2", 0)
    one.batch(SECOND, 1, 0, 12, (10,), (11,), gap=1)
    assert one.codes() == []
    DeltaTable(one.places.quarantine).delete("offset = 11")
    assert one.codes() == ["RECORDS_MISSING"]
