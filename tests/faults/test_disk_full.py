"""A full disk under the data files, the Delta log and the checkpoint: the run stops, nothing is torn, and with room it goes on."""

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


def fill(folder: Path, left_bytes: int) -> Path:
    """A file that takes all room but about `left_bytes`."""
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
    """Where the small disk is, what is left on it, and whether the batch that meets it is in the target all the same.

    `begun`: the table must be there before.
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
def test_disk_full_the_run_stops_nothing_is_torn_and_with_room_it_goes_on(pipeline: PipelineFactory, name: str) -> None:
    """The disk is full from the moment in which a batch has its quarantine and not yet its rows.

    Under the checkpoint Spark's commit log cannot follow the target's commit. What was not committed is done by a later epoch.
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
        said = driver.ended(5)
        assert "ingest: DISK_FULL: shop.orders: no space left on device" in said and "Traceback" not in said
        assert (batch in lake.written()) == place.committed and 2 not in lake.numbers("commits")
        readable(lake)
        filler.unlink()
        lake.complete()
        assert (batch in lake.written()) == place.committed
        lake.verified()
        lake.judge().assert_clean()


def readable(lake: Pipeline) -> None:
    """Every version that is in the log can be read."""
    for commit in lake.commits():
        DeltaTable(str(lake.delta()), version=commit.version).to_pyarrow_table()
