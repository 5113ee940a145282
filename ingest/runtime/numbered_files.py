"""Numbered JSON files of one folder, from `000001.json`: each is written once, atomically, and nobody changes it afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable

from ingest.runtime.files import ANYBODY, Files

NAME = re.compile(r"([0-9]{6,12})\.json")


def numbers(files: Files, folder: str) -> list[int]:
    """The numbers of the files, ascending. Other files, such as the temporary one of a killed process, do not count."""
    return sorted(number for name in files.names(folder) if (number := number_of(name)) is not None)


def number_of(name: str) -> int | None:
    """The number of a file with this name, if `append` gives such a name."""
    found = NAME.fullmatch(name)
    number = int(found[1]) if found else 0
    return number if number and name == f"{number:06}.json" else None


def path_of(folder: str, number: int) -> str:
    """The file's path."""
    return f"{folder}/{number:06}.json"


def newest(files: Files, folder: str) -> tuple[int, bytes]:
    """The newest file's number and content; 0 and no bytes if there is none."""
    number = max(numbers(files, folder), default=0)
    return number, (files.read(path_of(folder, number)) or b"") if number else b""


def append(files: Files, folder: str, make: Callable[[int, bytes], bytes | None], mode: int = ANYBODY) -> int | None:
    """Write the next file and return its number.

    `make(number, former)` returns the content from the file before it (empty if there is none), or None to write nothing. If another
    process takes the number first, it is called again with the next number and that process's file.
    """
    while True:
        number, former = newest(files, folder)
        data = make(number + 1, former)
        if data is None:
            return None
        if files.create(path_of(folder, number + 1), data, mode):
            return number + 1
