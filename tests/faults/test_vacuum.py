"""A forced VACUUM in the middle of a write takes files that no version has yet: whatever then happens is loud, and can be mended."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from tests.faults.conftest import PipelineFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_files_that_a_vacuum_takes_from_under_a_writer_are_missed_aloud_and_the_batch_is_done_again(pipeline: PipelineFactory) -> None:
    """Another engine, told to keep nothing and to look at all files: Delta's own safeguard of seven days is switched off."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    driver = lake.start(fault="during_target:hang@1")
    driver.stopped()
    table = DeltaTable(str(lake.delta()))
    taken = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert any(name.endswith(".parquet") for name in taken), taken
    driver.proceed()
    driver.ended(5)
    assert "Traceback" not in driver.said
    assert lake.written() == [0], "no version names a file that is gone"
    lake.complete()
    lake.judge().assert_clean()
    lake.command("verify").ended(0)
