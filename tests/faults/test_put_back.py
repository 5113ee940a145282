"""A table that is put back as it was, or has lost its history: refused by name, and what the refusal says mends it (I2, I6, I7)."""

from __future__ import annotations

import json
import shutil

import pytest
from deltalake import DeltaTable

from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def lake(pipeline: PipelineFactory) -> Pipeline:
    """A topic that is read; retries of its events come with what is produced later."""
    made = pipeline(batch=1500)
    made.produce(1500, poison=20)
    made.complete()
    return made


def mended(lake: Pipeline, code: str) -> None:
    """A start is refused with this code; the seek that it names converges."""
    assert "`ingest seek shop.orders --to table`" in lake.refused(code)
    lake.seek()
    lake.produce(500, seed=3)
    lake.complete()
    lake.verified()


@pytest.mark.parametrize("kind", ["target", "quarantine"])
def test_a_table_restored_to_an_older_version_is_refused_and_a_seek_reads_again_what_it_lost(lake: Pipeline, kind: str) -> None:
    """Delta keeps the transaction ids of what a RESTORE takes away: only the history tells. No row comes twice."""
    before = lake.commits(kind)[-1].version
    # Without copies: which of them is the row depends on what one batch reads, and the oracle counts the batches that are left out, too.
    lake.produce(1500, poison=20, seed=2, duplicate_share=0)
    lake.complete()
    own = lake.restore(kind, before)
    mended(lake, "TABLE_REWOUND" if kind == "target" else "QUARANTINE_REWOUND")
    owned = {kind: frozenset({own})}
    lake.judge(own_versions=owned.get("target", frozenset()), own_quarantine_versions=owned.get("quarantine", frozenset())).assert_clean()


def test_a_ledger_that_was_restored_or_is_gone_is_made_again_from_the_log(lake: Pipeline) -> None:
    before = lake.commits("ledger")[-1].version
    lake.produce(1500, poison=20, seed=2)
    lake.complete()
    assert lake.restore("ledger", before) > before and lake.ledgered() < set(lake.written())
    for move_away in (False, True):
        if move_away:
            shutil.move(lake.delta("ledger"), lake.folder / "ledger moved away")
        lake.complete()
        assert lake.ledgered() == set(lake.written())
        lake.verified()
        lake.judge().assert_clean()


def test_a_restore_in_the_middle_of_a_batch_stops_the_run_at_its_next_look(lake: Pipeline) -> None:
    """What it committed on top of it, if anything, is counted, and what the RESTORE took is read again."""
    before = lake.commits()[-1].version
    lake.produce(3000, poison=20, seed=2, duplicate_share=0)
    driver = lake.start(fault="after_quarantine:hang@3")
    driver.stopped()
    own = lake.restore("target", before)
    driver.proceed()
    assert "ingest: TABLE_REWOUND: " in driver.ended(5) and lake.commits()[-1].version == own
    mended(lake, "TABLE_REWOUND")
    lake.judge(own_versions=frozenset({own})).assert_clean()


def test_with_the_targets_log_cleaned_up_start_and_seek_go_on_where_the_ledger_says(lake: Pipeline) -> None:
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
    ends = begins(lake)
    lake.produce(1500, poison=20, seed=2)
    shutil.rmtree(lake.checkpoints)
    lake.complete()
    assert {partition: start for partition, (start, _) in lake.batches()[0].ranges.items()} == ends
    lake.seek("earliest")
    lake.produce(500, seed=3)
    lake.complete()
    lake.verified()
    lake.judge(own_versions=frozenset({own})).assert_clean()


def begins(lake: Pipeline) -> dict[int, int]:
    """Where `seek --to table` would begin."""
    said = json.loads(lake.command("seek", "orders", "--to", "table", "--dry-run", "--json").ended(0))
    return dict(said["tables"][0]["starts"])
