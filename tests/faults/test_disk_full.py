"""A full disk under the checkpoint: the run stops, nothing is torn, and with room it goes on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SIZE = "24m"


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of a few megabytes of its own at `folder`, which keeps what it holds. Skips where one cannot be mounted."""
    kept = folder.with_name(f"{folder.name}-kept")
    folder.rename(kept)
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    mounted = sys.platform == "linux" and subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0
    try:
        if not mounted:
            pytest.skip("no tmpfs can be mounted here: that takes Linux and the right to mount")
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        yield
    finally:
        if mounted:
            # Lazily: whatever still has a file open there must not keep the mount alive.
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all room."""
    filler = folder / ".filler"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    with filler.open("wb", buffering=0) as file:
        try:
            for _ in range(0, free, 4096):
                file.write(b"\0" * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return filler


def test_disk_full_under_the_checkpoint_the_run_stops_nothing_is_torn_and_with_room_it_goes_on(pipeline: PipelineFactory) -> None:
    """It is full from the moment in which a batch has its quarantine: Spark's commit log cannot follow the target's commit."""
    lake = pipeline(batch=1500)
    lake.produce(1500, poison=20)
    folder = lake.checkpoints / "shop"
    folder.mkdir(parents=True)
    with small_disk(folder):
        driver = lake.start(fault="after_quarantine:hang@0")
        driver.stopped()
        filler = fill(folder)
        driver.proceed()
        said = driver.ended(5)
        assert "ingest: " in said and "shop.orders" in said and "No space left" in said and "Traceback" not in said
        assert lake.written() == [0] and lake.numbers("commits") == []
        readable(lake)
        filler.unlink()
        lake.complete()
        assert lake.written().count(0) == 1 and 0 in lake.numbers("commits")
        lake.judge().assert_clean()


def readable(lake: Pipeline) -> None:
    """Every version that is in the log can be read."""
    for commit in lake.commits():
        DeltaTable(str(lake.delta()), version=commit.version).to_pyarrow_table()
