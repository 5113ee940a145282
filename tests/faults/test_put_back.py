"""A checkpoint or a table that is put back as it was, or has lost its history: nothing is lost and nothing twice (I2, I6, I7)."""

from __future__ import annotations

import shutil

import pytest
from deltalake import DeltaTable

from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def lake(pipeline: PipelineFactory) -> Pipeline:
    """Two batches are read; retries of their events come with what is produced later."""
    made = pipeline(batch=1500)
    made.produce(1500, poison=20)
    made.complete()
    return made


def mended(lake: Pipeline, code: str) -> None:
    """A start is refused with this code; the rebase that it names converges."""
    assert "ingest rebase shop.orders --to table" in lake.refused(code)
    lake.command("rebase", "orders", "--to", "table").ended(0)
    lake.produce(500, seed=3)
    lake.complete()
    lake.verified()


def test_an_older_checkpoint_is_refused_and_a_rebase_converges(lake: Pipeline) -> None:
    """A backup of before the last batches: Spark would plan them anew, with other ranges, and Delta would skip them by their pairs."""
    kept = lake.folder / "kept"
    shutil.copytree(lake.checkpoint(), kept)
    lake.produce(1500, poison=20, seed=2)
    lake.complete()
    shutil.rmtree(lake.checkpoint())
    shutil.copytree(kept, lake.checkpoint())
    mended(lake, "CHECKPOINT_OLD")
    lake.judge().assert_clean()


def test_a_target_restored_to_an_older_version_is_refused_and_a_rebase_reads_again_what_it_lost(lake: Pipeline) -> None:
    """The pairs of what the RESTORE took away stay: without the history every batch up to them would be skipped."""
    before = lake.commits()[-1].version
    # Without copies: which of them is the row depends on what one batch reads, and the oracle counts the batches that are left out, too.
    lake.produce(1500, poison=20, seed=2, duplicate_share=0)
    lake.complete()
    DeltaTable(str(lake.delta())).restore(before)
    own = lake.commits()[-1].version
    mended(lake, "TABLE_REWOUND")
    lake.judge(own_versions=frozenset({own})).assert_clean()


def test_with_the_targets_log_cleaned_up_a_start_goes_on_and_a_rebase_begins_where_the_ledger_says(lake: Pipeline) -> None:
    """As Delta does after thirty days: a checkpoint of its log, and no commit before it. The one that is left is no batch, so that the
    ledger alone knows of any.
    """
    DeltaTable(str(lake.delta())).optimize.compact()
    table = DeltaTable(str(lake.delta()))
    own = table.version()
    assert not lake.commits()[-1].txns, "OPTIMIZE has found nothing to do"
    table.create_checkpoint()
    for version in range(own):
        for name in (f"{version:020}.json", f".{version:020}.json.crc", f"{version:020}.crc"):
            (lake.delta() / "_delta_log" / name).unlink(missing_ok=True)
    lake.produce(1500, poison=20, seed=2)
    lake.complete()
    shutil.rmtree(lake.checkpoint())
    mended(lake, "CHECKPOINT_LOST")
    lake.judge(own_versions=frozenset({own})).assert_clean()
