"""A RESTORE, REPLACE or full overwrite beneath a run is met before its next statement (I1)."""

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
    """The next commit would get the number of the one that is gone, and nothing would stand behind the hole."""
    sorted(Path(f"{scene.places.root}/{table}/_delta_log").glob("*.json"))[-1].unlink()


def put_back(scene: Scene, table: str) -> None:
    """A copy from before the look, to which others have written since."""
    cut_short(scene, table)
    for _ in range(2):
        (scene.rows if table == "target" else scene.records)([77])


HARMS: dict[str, Harm] = {
    "overwritten": overwrite,
    "cut short": cut_short,
    "put back": put_back,
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
def test_who_takes_committed_batches_out_of_a_table_stops_the_run(scene: Scene, table: str, harm: str) -> None:
    looking = look_back(scene)
    scene.batch(10, 20, range(10, 19), (19,))
    looking.again()
    HARMS[harm](scene, table)
    for _ in range(2):
        with pytest.raises(RunStopped, match=f"{table.upper().replace('TARGET', 'TABLE')}_REWOUND"):
            looking.again()


def test_what_others_may_do_is_seen_and_looked_at_no_more(scene: Scene) -> None:
    looking = look_back(scene)
    before = looking.snapshots
    assert looking.again() == before
    scene.rows([77])
    scene.target.delete("id = 77")
    scene.records([78])
    scene.quarantine.optimize.compact()
    assert looking.again() == looking.snapshots == Snapshots(scene.snapshots(), scene.snapshots("quarantine")) != before


def test_a_log_that_was_cleaned_up_meanwhile_is_no_loss(scene: Scene) -> None:
    looking = look_back(scene)
    for start in (10, 20, 30):
        scene.batch(start, start + 10, range(start, start + 10))
    scene.clean("target", 5)
    assert looking.again().target == scene.snapshots()
