"""Verify and what our own statements remove: they post it, so nothing is missing, nothing is deleted by others, and no loss hides (I4)."""

from __future__ import annotations

from importlib.resources import files

import pytest

from ingest.delta.batch_commit import SEEK, BatchId, Replay
from ingest.delta.delta_sql import At
from ingest.delta.posting import Key, Posting
from ingest.kafka.offsets import OffsetRange
from ingest.verify.against_kafka import removals_of
from ingest.verify.lost_records import Gone
from tests.unit.verify.proof_lake import ENGINE, Lake, sums
from tests.unit.verify.test_verdict import filled

pytestmark = pytest.mark.unit


def test_removed_rows_and_records_are_neither_missing_nor_deletes_of_others(lake: Lake) -> None:
    filled(lake).retire(8)
    lake.erase(3, 4)
    verified = lake.verified()
    assert (verified.findings, verified.deletes) == ((), ())
    assert (verified.quarantine.put, verified.quarantine.retired, verified.quarantine.found) == (3, 1, 2)
    assert (verified.target.put, verified.target.retired, verified.target.found) == (15, 2, 13)


def test_a_removal_excuses_no_other_loss(lake: Lake) -> None:
    filled(lake).retire(8)
    lake.take_records(9)
    lake.erase(3)
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER", "QUARANTINE_DIFFERS"]


def test_a_row_that_comes_back_after_its_erasure_is_found(lake: Lake) -> None:
    """I4: a copy of an old file, or a RESTORE by somebody who does not know why the row left."""
    filled(lake).erase(3)
    lake.rows([3], of=BatchId(1, 2))
    verified = lake.verified()
    assert ([each.code for each in verified.findings], verified.target.surplus) == (["ROWS_DIFFER"], 1)


def test_the_ledger_explains_a_removal_when_the_log_is_cleaned(lake: Lake) -> None:
    filled(lake).retire(8)
    lake.keep()
    lake.records(())
    lake.clean("quarantine", lake.quarantine.version())
    assert lake.codes(keep=False) == []


def test_a_retention_before_a_seek_is_not_written_off(lake: Lake) -> None:
    filled(lake).retire(8)
    assert lake.coverage().first_missing((0, 0)) == 20 and lake.coverage().written_off == ()
    lake.seek(0)
    lake.batch(0, 20, (), gap=1)
    assert lake.codes() == []
    lake.take_records(9)
    assert lake.codes() == ["QUARANTINE_DIFFERS"]


def test_rows_of_a_rebuild_are_erased_under_their_own_batches(lake: Lake) -> None:
    """I4: the books have a rebuild as one batch."""
    lake.batch(0, 10, range(10))
    lake.swap(0, 20)
    lake.erase(15, of=BatchId(lake.epoch - 1, 3))
    verified = lake.verified()
    assert (verified.findings, verified.target.retired, verified.target.found) == ((), 1, 19)


def test_what_a_restore_brings_back_is_a_finding_until_a_seek_and_may_leave_again(lake: Lake) -> None:
    """I4: the books would otherwise have the removal twice, and never balance again."""
    then = filled(lake).quarantine.version(), lake.target.version()
    lake.retire(8)
    lake.erase(3)
    lake.quarantine.restore(then[0])
    lake.target.restore(then[1])
    assert lake.codes() == ["ROWS_DIFFER", "QUARANTINE_DIFFERS"]
    lake.retire(8)  # as a maintenance does before anybody looks
    lake.seek(20)
    assert lake.codes() == []
    lake.erase(3)
    assert lake.codes() == []
    lake.take(4)
    assert lake.codes() == ["ROWS_DIFFER"]


def test_what_was_removed_of_a_replay_is_no_lost_record(lake: Lake) -> None:
    """I4: Kafka may still have it, and it is refused no more."""
    filled(lake).start()
    key, replayed = Key(lake.epoch, SEEK, 0, 0), sums(BatchId(lake.epoch, SEEK), 0, [8], [8])
    posting = Posting(key, "replay", OffsetRange(0, 8, 9), 1, replayed)
    lake.rows([8], batch_commit=lake.batch_commit(Replay("a test"), SEEK, posting))
    lake.retire(8)
    lake.erase(8, of=BatchId(lake.epoch, SEEK))
    assert lake.codes() == []
    assert removals_of(lake.books(), (0, 0)) == [Gone(OffsetRange(0, 0, 10), 1, False), Gone(OffsetRange(0, 8, 9), 1, True)]
    assert removals_of(lake.books(), (0, 1)) == removals_of(lake.books(), (1, 0)) == []


def test_what_was_removed_of_rows_that_no_batch_has_put_there_is_no_difference(lake: Lake) -> None:
    """I4: somebody inserted it by hand, or its batch was cut off. The accountant's queries agree with verify."""
    other = BatchId(7, 2)
    filled(lake).rows([30], of=other)
    lake.records([31], of=other)
    lake.keep()

    def differences() -> list[int]:
        tables = {name: At(f"{lake.places.root}/{name}") for name in ("ledger", "target", "quarantine")}
        texts = ((files("ingest.sql.questions") / f"books-against-{name}.sql").read_text() for name in ("target", "quarantine"))
        return [len(ENGINE.ask(text, **tables)) for text in texts]

    assert (lake.codes(), differences()) == (["ROWS_OF_NO_BATCH"], [1, 1])
    lake.erase(30, of=other)
    lake.retire(31, of=other)
    assert (lake.codes(), differences()) == ([], [0, 0])
