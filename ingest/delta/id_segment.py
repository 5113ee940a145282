"""A segment: the sorted hashes of the event ids of some data files, in one file that is mapped and never changed.

    high     uint64 x rows   upper halves of the hashes, ascending
    low      uint64 x rows   lower halves
    number   uint32 x rows   which data file has the row, as a place in `files`
    about    JSON            Of, and for each data file its path, size and rows, and the CRC-32C of each column above
    end      16 bytes        length and CRC-32C of `about`, and MAGIC

A segment says itself what it describes, so its own name, place and age mean nothing: it may be moved, swapped with another one, or put back
from an older copy. Whether its data files are live is asked of the snapshot each time (docs/decisions/id-index.md).
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import crc32c
import numpy as np
from numpy.typing import NDArray

from ingest.runtime.canonical_json import read_json

MAGIC = b"onceids1"
END = struct.Struct("<II8s")
COLUMNS = ("<u8", "<u8", "<u4")
ROW_BYTES = 20
SUFFIX = ".ids"
# Segments are merged slice by slice, so that memory does not depend on their size: about 60 MB for a million rows.
SLICE_ROWS = 2**20

Numbers = NDArray[np.uint32]
NONE = np.uint32(2**32 - 1)
Hashes = tuple[NDArray[np.uint64], NDArray[np.uint64], Numbers]
"""Upper halves, ascending, lower halves, and numbers of files."""
NOTHING: Hashes = np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint32)


class InTable(Protocol):
    """A data file, live or staged. Its path, size and rows identify it: its content never changes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def rows(self) -> int | None: ...


class Damaged(ValueError):
    """The file is no whole segment."""


@dataclass(frozen=True)
class Of:
    """What the ids of a segment are: those of a table, of these columns and types, hashed under a secret (hexadecimal)."""

    table: str
    columns: str
    secret: str


@dataclass(frozen=True)
class Segment:
    """An open segment. `files` has (path, size, rows); `stamp` tells whether its file was touched since it was opened."""

    path: Path
    of: Of
    files: tuple[tuple[str, int, int], ...]
    rows: int
    crcs: tuple[int, ...]
    columns: Hashes
    stamp: tuple[int, ...]
    numbers: Mapping[str, int]

    @property
    def size(self) -> int:
        """Its bytes on the disk."""
        return self.stamp[1]

    def number(self, file: InTable) -> int | None:
        """The number of a data file here; None if it is another one or none of these."""
        at = self.numbers.get(file.path)
        if at is None or self.files[at][1] != file.size or file.rows not in (None, self.files[at][2]):
            return None
        return at

    def verify(self) -> None:
        """Raises Damaged unless every bit of the columns is as it was written."""
        if tuple(crc32c.crc32c(column.view(np.uint8)) for column in self.columns) != self.crcs:  # type: ignore[arg-type]
            raise Damaged(f"{self.path}: its checksum differs")


def stamp(path: Path) -> tuple[int, ...]:
    """Changes whenever somebody writes to the file, cuts it or puts another one in its place. Raises FileNotFoundError."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def opened(path: Path) -> Segment:
    """Map a segment, whose columns are not verified yet. Raises Damaged and FileNotFoundError."""
    with path.open("rb") as handle:
        seen = stamp(path)
        if seen[1] < END.size:
            raise Damaged(f"{path}: {seen[1]} bytes")
        data = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    length, crc, magic = END.unpack(data[-END.size :])
    about = data[max(0, len(data) - END.size - length) : -END.size]
    if magic != MAGIC or crc32c.crc32c(about) != crc:
        raise Damaged(f"{path}: its end differs")
    known: dict[str, Any] = read_json(about)
    files = tuple((path, size, rows) for path, size, rows in known["files"])
    rows = sum(rows for _, _, rows in files)
    if len(data) != rows * ROW_BYTES + len(about) + END.size:
        raise Damaged(f"{path}: {len(data)} bytes do not fit {rows} rows")
    high, low, number = (np.frombuffer(data, kind, rows, at) for kind, at in zip(COLUMNS, _places(rows), strict=True))
    numbers = {path: at for at, (path, _, _) in enumerate(files)}
    return Segment(path, Of(**known["of"]), files, rows, tuple(known["crcs"]), (high, low, number), seen, numbers)


def _places(rows: int) -> tuple[int, int, int]:
    return 0, 8 * rows, 16 * rows


def write(folder: Path, of: Of, files: Sequence[tuple[str, int, int]], sources: Sequence[tuple[Hashes, Numbers]]) -> Path:
    """Write a new segment of the hashes of `files`. Nobody sees it before it is whole.

    Each source comes with the new number of each of its files; rows with the number NONE are left out. Raises Damaged if the files have
    another number of rows, and OSError.
    """
    rows = sum(rows for _, _, rows in files)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4()}{SUFFIX}"
    unfinished = path.with_name(f".{path.name}")
    handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # who knows the secret can choose ids that collide
    try:
        places, crcs, at = _places(rows), [0, 0, 0], 0
        slices = sum(len(high) for (high, _, _), _ in sources) // SLICE_ROWS + 1
        bounds = np.array([2**64 * each // slices for each in range(1, slices)], np.uint64)  # hashes are spread evenly
        cuts = [[0, *np.searchsorted(high, bounds).tolist(), len(high)] for (high, _, _), _ in sources]
        for each in range(slices):
            parts: list[Hashes] = [NOTHING]
            for cut, ((high, low, number), numbers) in zip(cuts, sources, strict=True):
                some = slice(cut[each], cut[each + 1])
                parts.append((high[some], low[some], numbers[number[some]]))
            high, low = (np.concatenate([part[half] for part in parts]) for half in (0, 1))
            number = np.concatenate([part[2] for part in parts])
            order = np.argsort(high)
            order = order[number[order] != NONE]
            if at + len(order) > rows:
                raise Damaged(f"more hashes than the {rows} rows of their files")
            for column, (values, bytes_a_row) in enumerate(((high[order], 8), (low[order], 8), (number[order], 4))):
                data = values.tobytes()
                crcs[column] = crc32c.crc32c(data, crcs[column])
                if os.pwrite(handle, data, places[column] + at * bytes_a_row) != len(data):
                    raise OSError(f"{unfinished} was written in part")
            at += len(order)
        if at != rows:
            raise Damaged(f"{at} hashes for the {rows} rows of their files")
        about = json.dumps({"of": vars(of), "files": files, "crcs": crcs}).encode()
        os.pwrite(handle, about + END.pack(len(about), crc32c.crc32c(about), MAGIC), rows * ROW_BYTES)
        os.rename(unfinished, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise
    finally:
        os.close(handle)
    return path


def merged(folder: Path, segments: Sequence[Segment], live: Mapping[str, InTable]) -> Path | None:
    """Write the hashes of the live files of these segments into one segment; None if no file is live. A file that two have counts once."""
    files: dict[tuple[str, int, int], int] = {}
    sources = []
    for segment in segments:
        segment.verify()
        numbers = np.full(len(segment.files), NONE)
        for at, file in enumerate(segment.files):
            if file not in files and file[0] in live and segment.number(live[file[0]]) == at:
                numbers[at] = files[file] = len(files)
        sources.append((segment.columns, numbers))
    return write(folder, segments[0].of, list(files), sources) if files else None
