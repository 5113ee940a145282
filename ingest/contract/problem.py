"""The problems of a contract: one value per problem, and the error that shows all of them with file and line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic_core import PydanticCustomError

from ingest.runtime.errors import InvalidInput

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One problem at `loc` (keys and indexes from the top of the document), and the allowed value."""

    loc: Loc
    found: str
    expected: str

    def as_pydantic(self) -> PydanticCustomError:
        """The problem as an error that pydantic carries through nested values."""
        return refusal(self.found, self.expected)


@dataclass(frozen=True)
class LocatedProblem:
    """A problem with a place that an editor can open; `line` counts from 1."""

    file: str
    line: int
    key: str
    found: str
    expected: str

    @property
    def place(self) -> str:
        """`file:line`, and the key if it is known."""
        return f"{self.file}:{self.line}" + (f" {self.key}" if self.key else "")


class ContractInvalid(InvalidInput):
    """Raised if a contract is refused; `problems` contains every problem of every file read, in order of file and line."""

    def __init__(self, problems: Iterable[LocatedProblem], code: str = "CONTRACT_INVALID") -> None:
        self.problems: Sequence[LocatedProblem] = tuple(sorted(set(problems), key=lambda p: (p.file, p.line, p.key, p.found)))
        if len(self.problems) == 1:
            only = self.problems[0]
            found: tuple[str, ...] = (f"{only.place}: {only.found}.",)
            expected: tuple[str, ...] = (f"{only.expected}.",)
        else:
            found = numbered(f"{len(self.problems)} problems:", (f"{p.place}: {p.found}" for p in self.problems))
            expected = numbered("for each of them:", (p.expected for p in self.problems))
        files = ", ".join(dict.fromkeys(p.file for p in self.problems))
        super().__init__(code, found, expected=expected, remedy=f"edit {files}; docs/reference/contracts.md describes every key.")


def numbered(head: str, lines: Iterable[str]) -> tuple[str, ...]:
    """The lines of a list in an error, below its head."""
    return head, *(f"  {number:2}. {line}" for number, line in enumerate(lines, 1))


def refusal(found: str, expected: str) -> PydanticCustomError:
    """The error that the validators of a contract's parts raise."""
    return PydanticCustomError("contract", "{found}. Expected: {expected}", {"found": found, "expected": expected})


def key_text(loc: Loc) -> str:
    """`("columns", 2, "type")` as `columns[2].type`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text.strip()


def one_of(allowed: Iterable[str], given: object = None) -> str:
    """The allowed words, with a hint at the word most similar to `given`."""
    words = list(allowed)
    if not words:
        return "nothing: no value fits"
    match = get_close_matches(str(given), words, n=1, cutoff=0.5) if given is not None and len(words) > 1 else []
    hint = f" (did you mean {match[0]}?)" if match else ""
    return f"{'one of ' if len(words) > 1 else ''}{', '.join(words)}{hint}"


def shown(value: object) -> str:
    """A value as the user wrote it, with its kind if that may be a surprise; cut at 60 characters."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"{str(value).lower()} (a boolean)"
        case int() | float():
            return f"{value} (a number)"
        case str():
            return f"'{value}'" if len(value) <= 60 else f"'{value[:57]}...'"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return type(value).__name__
