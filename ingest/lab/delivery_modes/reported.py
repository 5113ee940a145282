"""The log of a sender: which records it started to send and with which outcome. It survives a SIGKILL of the sender.

A restarted sender also continues where the log ends. Lines are `<word> <first> <end>`: `begun` before the first record of a group is
sent; then `delivered`, `failed`, `aborted` or `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

Word: TypeAlias = Literal["begun", "delivered", "failed", "aborted", "unknown"]


@dataclass(frozen=True)
class Entry:
    """A word about the records from `first` up to, but not including, `end`."""

    word: Word
    first: int
    end: int

    def __post_init__(self) -> None:
        if self.word not in get_args(Word) or not 0 <= self.first <= self.end:
            raise ValueError(f"{self}: expected one of {get_args(Word)} and 0 <= first <= end.")


class Reported:
    """The log file. It is not fsynced: it must survive the process, not a crash of the machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, word: Word, first: int, end: int) -> None:
        entry = Entry(word, first, end)
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{entry.word} {entry.first} {entry.end}\n".encode())  # one call: a line is complete or missing

    def entries(self) -> list[Entry]:
        if not self._path.exists():
            return []
        found = [line.split() for line in self._path.read_text(encoding="ascii").splitlines()]
        return [Entry(cast(Word, word), int(first), int(end)) for word, first, end in found]

    def after(self, *words: Word) -> int:
        """The highest `end` of entries with one of these words; 0 if there is none."""
        return max((entry.end for entry in self.entries() if entry.word in words), default=0)


def numbers(entries: Iterable[Entry], word: Word) -> set[int]:
    """The numbers of all records with this word."""
    return {number for entry in entries if entry.word == word for number in range(entry.first, entry.end)}
