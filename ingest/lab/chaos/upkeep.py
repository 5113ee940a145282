"""Another engine on the tables: delta-rs compacts and deletes between two drivers, while it holds our locks."""

from __future__ import annotations

import fcntl
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ingest.delta.delta_log import DeltaLog
from ingest.lab.oracle.oracle_tables import select
from ingest.lab.oracle.sources import id_text
from ingest.lab.worker import until
from ingest.runtime.files import LocalFiles

if TYPE_CHECKING:
    from ingest.lab.chaos.scene import Scene

DELETED_IDS: Final = 50
LOCK_WITHIN_S: Final = 90.0


@contextmanager
def locked(scene: Scene) -> Iterator[None]:
    """Hold the lock of every table (`ingest.run.table_lock`), as any other writer on a local disk must."""
    with ExitStack() as stack:
        for contract in scene.contracts:
            path = scene.lock(contract)
            if path.exists():
                file = stack.enter_context(path.open("r+b"))
                assert until(partial(_taken, file.fileno()), LOCK_WITHIN_S), f"{path} is held by a driver that was killed"
        yield


def optimize(scene: Scene, number: int) -> None:
    """Compact the small files of a table."""
    from deltalake import DeltaTable

    target = Path(scene.places(scene.contracts[number]).target)
    if DeltaLog(LocalFiles(), str(target)).exists():
        DeltaTable(str(target)).optimize.compact()


def delete(scene: Scene, number: int, chance: float) -> None:
    """Delete up to DELETED_IDS rows; `scene.excused` gets their ids, so the oracle excuses them."""
    from deltalake import DeltaTable

    contract = scene.contracts[number]
    target = Path(scene.places(contract).target)
    # A driver that was killed while it created the table leaves a log without a commit.
    if not DeltaLog(LocalFiles(), str(target)).exists():
        return
    ids = contract.event_id.columns
    rows = select(target, ["_source", "_partition", "_offset", *ids])
    start = int(chance * max(len(rows) - DELETED_IDS, 0))
    chosen = rows[start : start + DELETED_IDS]
    if not chosen:
        return
    scene.excused[contract.name] |= {tuple(str(id_text(value)) for value in row[3:]) for row in chosen}
    offsets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for source, partition, offset, *_ in chosen:
        offsets[source, partition].append(offset)
    here = ((*of, ", ".join(map(str, each))) for of, each in offsets.items())
    places = " OR ".join(f"(_source = {source} AND _partition = {p} AND _offset IN ({each}))" for source, p, each in here)
    table = DeltaTable(str(target))
    table.delete(places)
    scene.own_versions[contract.name].add(table.version())


def _taken(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
