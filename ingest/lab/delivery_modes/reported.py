"""The log of a sender: what it began and what it was told, by number of record. It outlives the sender's death by SIGKILL.

It is the sender's own memory as well: a restarted one goes on where the log ends. Lines are `<word> <first> <end>`:
`begun` before the first record of a group is handed over; then `delivered`, `failed`, `aborted` or `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

Word: TypeAlias = Literal["begun", "delivered", "failed", "aborted", "unknown"]


@dataclass(frozen=True)
class Entry:
    """Records `first` up to `end`, which is not one of them."""

    word: Word
    first: int
    end: int

    def __post_init__(self) -> None:
        if self.word not in get_args(Word) or not 0 <= self.first <= self.end:
            raise ValueError(f"{self}: expected one of {get_args(Word)} and 0 <= first <= end.")


class Reported:
    """The file. Not fsynced: it has to outlive a process, not the machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, word: Word, first: int, end: int) -> None:
        entry = Entry(word, first, end)
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{entry.word} {entry.first} {entry.end}\n".encode())  # one call: a line is there or it is not

    def entries(self) -> list[Entry]:
        if not self._path.exists():
            return []
        found = [line.split() for line in self._path.read_text(encoding="ascii").splitlines()]
        return [Entry(cast(Word, word), int(first), int(end)) for word, first, end in found]

    def after(self, *words: Word) -> int:
        """The number behind the last record of which one of these words was said; 0 if none was."""
        return max((entry.end for entry in self.entries() if entry.word in words), default=0)


def numbers(entries: Iterable[Entry], word: Word) -> set[int]:
    """The records of which this was said."""
    return {number for entry in entries if entry.word == word for number in range(entry.first, entry.end)}
