"""A RESTORE, REPLACE or full overwrite during a run is noticed before the run's next statement (I1)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import write_deltalake

from ingest.delta.batch_commit import Snapshots
from ingest.recovery.look_back import LookBack
from ingest.runtime.errors import RunStopped
from tests.unit.recovery.engine_scene import Scene

Harm = Callable[[Scene, str], object]


def overwrite(scene: Scene, table: str) -> None:
    write_deltalake(
        f"{scene.places.root}/{table}", (scene.target if table == "target" else scene.quarantine).to_pyarrow_table(), mode="overwrite"
    )


def cut_short(scene: Scene, table: str) -> None:
    """Remove the newest commit: the next one would get its version, and the log would have no hole."""
    sorted(Path(f"{scene.places.root}/{table}/_delta_log").glob("*.json"))[-1].unlink()


def restore_copy(scene: Scene, table: str) -> None:
    """Restore a copy from before the snapshot; others have written to it since."""
    cut_short(scene, table)
    for _ in range(2):
        (scene.rows if table == "target" else scene.records)([77])


HARMS: dict[str, Harm] = {
    "overwritten": overwrite,
    "cut short": cut_short,
    "restored from a copy": restore_copy,
    "dropped": lambda scene, table: shutil.rmtree(f"{scene.places.root}/{table}"),
}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    scene.first()
    scene.batch(0, 10, range(9), (9,))
    return scene


def look_back(scene: Scene) -> LookBack:
    return LookBack("shop.orders", scene.log(), scene.log("quarantine"), Snapshots(scene.snapshots(), scene.snapshots("quarantine")))


@pytest.mark.parametrize("table", ["target", "quarantine"])
@pytest.mark.parametrize("harm", HARMS)
def test_a_harm_that_removes_committed_batches_stops_the_run(scene: Scene, table: str, harm: str) -> None:
    check = look_back(scene)
    scene.batch(10, 20, range(10, 19), (19,))
    check.again()
    HARMS[harm](scene, table)
    for _ in range(2):
        with pytest.raises(RunStopped, match=f"{table.upper().replace('TARGET', 'TABLE')}_REWOUND"):
            check.again()


def test_allowed_foreign_commits_advance_the_snapshots_and_stop_nothing(scene: Scene) -> None:
    check = look_back(scene)
    before = check.snapshots
    assert check.again() == before
    scene.rows([77])
    scene.target.delete("id = 77")
    scene.records([78])
    scene.quarantine.optimize.compact()
    assert check.again() == check.snapshots == Snapshots(scene.snapshots(), scene.snapshots("quarantine")) != before


def test_a_log_cleanup_during_a_run_is_not_a_loss(scene: Scene) -> None:
    check = look_back(scene)
    for start in (10, 20, 30):
        scene.batch(start, start + 10, range(start, start + 10))
    scene.clean("target", 5)
    assert check.again().target == scene.snapshots()
