"""A table is restored to an older version or has lost its history: the start is refused, and the named remedy repairs it (I2, I6, I7)."""

from __future__ import annotations

import json
import shutil

import pytest
from deltalake import DeltaTable

from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline, ranges

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def lake(pipeline: PipelineFactory) -> Pipeline:
    """A topic that has been read. Records produced later include retries of its events."""
    made = pipeline(batch=1500)
    made.produce(1500, poison=20)
    made.complete()
    return made


def mended(lake: Pipeline, code: str) -> None:
    """A start is refused with this code; after the seek that it names, runs complete and `verify` passes."""
    assert "`ingest seek shop.orders --to table`" in lake.refused(code)
    lake.seek()
    lake.produce(500, seed=3)
    lake.complete()
    lake.verified()


@pytest.mark.parametrize("kind", ["target", "quarantine"])
def test_a_table_restored_to_an_older_version_is_refused_and_a_seek_re_reads_what_it_lost(lake: Pipeline, kind: str) -> None:
    """Delta keeps the transaction ids of commits that a RESTORE reverts, so only the history shows it. No row is duplicated."""
    before = lake.commits(kind)[-1].version
    # Without copies: which copy is the row depends on the batches, and the oracle also counts the reverted batches.
    lake.produce(1500, poison=20, seed=2, duplicate_share=0)
    lake.complete()
    own = lake.restore(kind, before)
    mended(lake, "TABLE_REWOUND" if kind == "target" else "QUARANTINE_REWOUND")
    owned = {kind: frozenset({own})}
    lake.judge(own_versions=owned.get("target", frozenset()), own_quarantine_versions=owned.get("quarantine", frozenset())).assert_clean()


def test_a_restored_or_missing_ledger_is_rebuilt_from_the_log(lake: Pipeline) -> None:
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


def test_a_restore_during_a_batch_stops_the_run_at_its_next_check(lake: Pipeline) -> None:
    """The run commits nothing after the RESTORE, and the seek re-reads the rows that the RESTORE removed."""
    before = lake.commits()[-1].version
    lake.produce(3000, poison=20, seed=2, duplicate_share=0)
    driver = lake.start(fault="after_quarantine:hang@3")
    driver.stopped()
    own = lake.restore("target", before)
    driver.proceed()
    assert "ingest: TABLE_REWOUND: " in driver.ended(5) and lake.commits()[-1].version == own
    mended(lake, "TABLE_REWOUND")
    lake.judge(own_versions=frozenset({own})).assert_clean()


def test_with_the_targets_log_cleaned_up_start_and_seek_use_the_ledgers_offsets(lake: Pipeline) -> None:
    """As Delta does after thirty days: its log has a checkpoint and no commit before it.

    The only commit left is not a batch, so only the ledger knows the batches.
    """
    DeltaTable(str(lake.delta())).optimize.compact()
    table = DeltaTable(str(lake.delta()))
    own = table.version()
    assert not lake.commits()[-1].txns, "OPTIMIZE found nothing to compact"
    table.create_checkpoint()
    for version in range(own):
        for name in (f"{version:020}.json", f".{version:020}.json.crc", f"{version:020}.crc"):
            (lake.delta() / "_delta_log" / name).unlink(missing_ok=True)
    ends = seek_starts(lake)
    lake.produce(1500, poison=20, seed=2)
    shutil.rmtree(lake.checkpoints)
    lake.complete()
    assert {partition: start for partition, (start, _) in ranges(lake.batches()[0]).items()} == ends
    lake.seek("earliest")
    lake.produce(500, seed=3)
    lake.complete()
    lake.verified()
    lake.judge(own_versions=frozenset({own})).assert_clean()


def seek_starts(lake: Pipeline) -> dict[int, int]:
    """The offsets at which `seek --to table` would start."""
    report = json.loads(lake.command("seek", "orders", "--to", "table", "--dry-run", "--json").ended(0))
    return dict(report["tables"][0]["starts"])
