"""SIGTERM and Ctrl-C for verbs that run until they are stopped: both finish the current transaction first. A second Ctrl-C ends at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def until_signal() -> Iterator[Callable[[], bool]]:
    """Yield `stop`, which is True after a SIGTERM or Ctrl-C. After Ctrl-C the block ends with exit code 130."""
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        if received and number == signal.SIGINT:  # the second Ctrl-C does not wait
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGINT in received:
        sys.exit(130)
