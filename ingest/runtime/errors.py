"""Every error that a user can meet, in four families and one for our own bugs.

The family decides the exit code; `code` is the stable name that scripts and `--json` see. A message always says what was
found, what was expected, and what mends it.
"""

from __future__ import annotations

from typing import ClassVar


class IngestError(Exception):
    """Root of all errors of this package.

    `found` is what was met and where, `expected` what would have been right, `remedy` the command or edit that mends it.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, code: str, found: str, *, expected: str, remedy: str) -> None:
        self.code = code
        self.found = found
        self.expected = expected
        self.remedy = remedy
        super().__init__(f"{code}: {found} Expected: {expected} Remedy: {remedy}")

    def as_dict(self) -> dict[str, str]:
        """The `error` value of every `--json` document."""
        return {"code": self.code, "found": self.found, "expected": self.expected, "remedy": self.remedy}


class InvalidInput(IngestError):
    """The user's input or a contract is wrong (exit 2)."""

    exit_code = 2


class Refused(IngestError):
    """Nothing was started because it could not be sure to be right (exit 3)."""

    exit_code = 3


class InvalidEnvironment(IngestError):
    """The environment lacks something: Java, jars, disk, a port, a broker (exit 4)."""

    exit_code = 4


class RunStopped(IngestError):
    """A run that had begun stopped by itself rather than lose or double a row (exit 5)."""

    exit_code = 5


class Bug(IngestError):
    """Something that must never happen did happen (exit 70)."""

    exit_code = 70

    def __init__(self, code: str, found: str, *, expected: str) -> None:
        super().__init__(code, found, expected=expected, remedy="report it with the log of the run; nothing was committed after this.")


# Several tables: the others go on, and the most severe code wins.
SEVERITY = (70, 5, 3, 4, 2, 1, 0)


def most_severe(exit_codes: list[int]) -> int:
    """The exit code of a command over several tables."""
    return min(exit_codes, key=SEVERITY.index, default=0)
