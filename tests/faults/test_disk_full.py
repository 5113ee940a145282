"""A full disk for the data files, the Delta log or the checkpoint: the run stops, nothing is torn, and with free space it continues."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SIZE = "24m"


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a separate small file system at `folder` and copy the contents over. Skips the test if it cannot be mounted."""
    kept = folder.with_name(f"{folder.name}-kept")
    folder.rename(kept)
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    mounted = sys.platform == "linux" and subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0
    try:
        if not mounted:
            pytest.skip("no tmpfs can be mounted here: this needs Linux and the permission to mount")
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        yield
    finally:
        if mounted:
            # Lazily: a process with an open file there must not keep the mount alive.
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, left_bytes: int) -> Path:
    """Write a file that leaves about `left_bytes` free."""
    filler = folder / ".filler"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    with filler.open("wb", buffering=0) as file:
        try:
            for _ in range(0, free - left_bytes, 4096):
                file.write(b"\0" * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return filler


@dataclass(frozen=True)
class Place:
    """Where the small disk is, its free space, and whether the batch that meets it is committed to the target anyway.

    `begun`: the table must exist before.
    """

    folder: str
    left_bytes: int
    committed: bool
    begun: bool


PLACES = {
    "data": Place("lake/shop", 16_384, committed=False, begun=False),
    "log": Place("lake/shop/orders/target/_delta_log", 0, committed=False, begun=True),
    "checkpoint": Place("checkpoints/shop", 0, committed=True, begun=False),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_full_disk_stops_the_run_tears_nothing_and_with_free_space_it_continues(pipeline: PipelineFactory, name: str) -> None:
    """The disk becomes full after a batch's quarantine commit and before its target commit.

    If the checkpoint's disk is full, the target's commit succeeds but Spark's commit log cannot be written. A later epoch repeats what
    was not committed.
    """
    place, lake = PLACES[name], pipeline(batch=1500)
    if place.begun:
        lake.produce(1000, poison=20, seed=2)
        lake.complete()
    lake.produce(1500, poison=20)
    folder = lake.folder / place.folder
    folder.mkdir(parents=True, exist_ok=True)
    with small_disk(folder):
        driver = lake.start(fault="after_quarantine:hang@2")
        driver.stopped()
        batch = lake.epoch(), 2
        filler = fill(folder, place.left_bytes)
        driver.proceed()
        output = driver.ended(5)
        assert "ingest: DISK_FULL: shop.orders: no space left on device" in output and "Traceback" not in output
        assert (batch in lake.written()) == place.committed and 2 not in lake.numbers("commits")
        readable(lake)
        filler.unlink()
        lake.complete()
        assert (batch in lake.written()) == place.committed
        lake.verified()
        lake.judge().assert_clean()


def readable(lake: Pipeline) -> None:
    """Every version in the log can be read."""
    for commit in lake.commits():
        DeltaTable(str(lake.delta()), version=commit.version).to_pyarrow_table()
