"""All errors that users see: four families, and one for our own bugs.

The family sets the exit code. `code` is the stable name that scripts and `--json` use. Every message says what was found, what was
expected, and how to fix it.
"""

from __future__ import annotations

from typing import ClassVar


class IngestError(Exception):
    """Root of all errors of this package.

    `found` describes the wrong state and its place, `expected` the correct state, `remedy` the command or edit that fixes it. Each is one
    line. A tuple is a line with those of a list below it: only there does a message break its lines, whatever text of others it quotes.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, code: str, found: str | tuple[str, ...], *, expected: str | tuple[str, ...], remedy: str) -> None:
        self.code = code
        self.lines = tuple((part,) if isinstance(part, str) else part for part in (found, expected, remedy))
        self.found, self.expected, self.remedy = map("\n".join, self.lines)
        super().__init__(f"{code}: {self.found} Expected: {self.expected} Remedy: {remedy}")

    def as_dict(self) -> dict[str, str]:
        """The `error` value of every `--json` document."""
        return {"code": self.code, "found": self.found, "expected": self.expected, "remedy": self.remedy}


class InvalidInput(IngestError):
    """The user's input or a contract is wrong (exit 2)."""

    exit_code = 2


class Refused(IngestError):
    """The command started nothing, because the result might have been wrong (exit 3)."""

    exit_code = 3


class InvalidEnvironment(IngestError):
    """The environment lacks something: Java, jars, disk space, a port, a broker (exit 4)."""

    exit_code = 4


class RunStopped(IngestError):
    """A run in progress stopped itself rather than lose or duplicate a row (exit 5)."""

    exit_code = 5


class Bug(IngestError):
    """Something happened that must never happen (exit 70)."""

    exit_code = 70

    def __init__(self, code: str, found: str, *, expected: str) -> None:
        super().__init__(code, found, expected=expected, remedy="report it with the log of the run; nothing was committed after this.")


# With several tables, the other tables continue, and the most severe code wins.
SEVERITY = (70, 5, 3, 4, 2, 1, 0)


def most_severe(exit_codes: list[int]) -> int:
    """The exit code of a command that covers several tables."""
    return min(exit_codes, key=SEVERITY.index, default=0)
