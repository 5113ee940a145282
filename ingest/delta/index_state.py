"""Where the index of a table's event ids is, how large it may become, and what it did: read by `status`, which loads no numpy."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import is_local, local_path
from ingest.runtime.places import Places

VARIABLE, DEFAULT_MB = "INGEST_ID_INDEX_MB", 4096
FILE = "state.json"


@dataclass
class IndexState:
    """The index as a batch last saw it. Since the run started: probes of files that it answered, reads of files, and how many of these were
    for want of room."""

    bytes_max: int
    rows: int = 0
    bytes: int = 0
    levels: int = 0
    answered: int = 0
    read: int = 0
    no_room: int = 0

    def write(self, folder: Path) -> None:
        """Replace what `state_of` reads. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f".{FILE}").write_text(json.dumps(asdict(self)), encoding="utf-8")
        (folder / f".{FILE}").replace(folder / FILE)


def index_place(places: Places) -> tuple[Path, int] | None:
    """The folder of a table's index, and its limit in bytes; None if the checkpoints are not on a local disk, or the limit is 0.

    Raises InvalidInput ID_INDEX_INVALID.
    """
    text = os.environ.get(VARIABLE) or str(DEFAULT_MB)
    if not text.isdecimal():
        raise InvalidInput(
            "ID_INDEX_INVALID",
            f"{VARIABLE}={text!r}.",
            expected="megabytes as a whole number; 0: no index of event ids.",
            remedy=f"correct or unset {VARIABLE}.",
        )
    if not is_local(places.checkpoints) or int(text) == 0:
        return None
    return local_path(places.checkpoint) / "ids", int(text) * 1_000_000


def state_of(places: Places) -> IndexState | None:
    """The state that the newest batch has left; None if no batch needed an index. Raises as `index_place`."""
    if (place := index_place(places)) is None:
        return None
    try:
        return IndexState(**read_json((place[0] / FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
