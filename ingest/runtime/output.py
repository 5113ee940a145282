"""What commands print. Text of others (ids, messages, file names) can neither control the terminal nor begin a line of its own.

Everything that a command prints goes through one of these functions; tests/unit/project/test_output.py refuses any other way.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

from ingest.runtime.printable import marked, printable

if TYPE_CHECKING:
    from rich.console import Console


def out_line(*lines: str, flush: bool = False) -> None:
    """Print lines on stdout. A line break inside one of them is shown as `\\n`."""
    _print(sys.stdout, lines)
    if flush:
        sys.stdout.flush()


def err_line(*lines: str) -> None:
    """Print lines on stderr, as `out_line` does."""
    _print(sys.stderr, lines)


def data_stream() -> IO[str]:
    """stdout for a format that programs read (CSV, JSON, metrics): unchanged into a file or pipe, guarded on a terminal."""
    return guarded(sys.stdout) if sys.stdout.isatty() else sys.stdout


def console(file: IO[str] | None = None, *, width: int | None = None, soft_wrap: bool = False) -> Console:
    """A console of rich for tables, colours and what is redrawn in place (default: on stdout). It takes no markup from text.

    Its own codes pass, also where `file` is guarded; those in the text do not.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Guarded(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for each in super().render(renderable, options):
                yield each if each.control else Segment(marked(each.text), each.style)

    own = file.stream if isinstance(file, _Guarded) else file
    return Guarded(file=own, width=width, soft_wrap=soft_wrap, highlight=False, markup=False)


def guarded(stream: IO[str]) -> IO[str]:
    """The stream without control codes; line breaks and tabs stay. For what others write there, such as the logs of libraries."""
    wrapped: Any = _Guarded(stream)
    found: IO[str] = wrapped
    return found


class LogLine(logging.Formatter):
    """A log record as one printable line."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _Guarded:
    """A stream that shows unprintable characters as printable ones; everything else is the stream's own."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(marked(re.sub("\r+\n", "\n", text)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _print(stream: IO[str], lines: Iterable[str]) -> None:
    stream.write("".join(f"{printable(line)}\n" for line in lines))
