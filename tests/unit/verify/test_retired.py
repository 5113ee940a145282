"""Verify and what our own statements remove: they post it, so nothing is missing, nothing is deleted by others, and no loss hides (I4)."""

from __future__ import annotations

import pytest

from ingest.delta.batch_commit import BatchId
from tests.unit.verify.proof_lake import Lake
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
    assert lake.coverage().first_missing(0) == 20 and lake.coverage().written_off == ()
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
