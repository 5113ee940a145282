"""The rate of an effect's calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_LOOK_EVERY_S: Final = 0.5


class Stopped(Exception):
    """Raised in place of a turn that nobody waits for any more."""


class Rate:
    """Spaces calls by `1 / per_s` seconds on average, over all threads."""

    def __init__(self, per_s: float | None) -> None:
        self._every_s = 1 / per_s if per_s else 0.0
        self._next, self._lock = 0.0, threading.Lock()

    def wait(self, stop: Callable[[], bool]) -> None:
        """Wait for a turn. Raises Stopped if `stop` returns True meanwhile; the turn is then nobody's."""
        with self._lock:
            now = time.monotonic()
            due = max(self._next, now)
            self._next = due + self._every_s
        while (left_s := due - time.monotonic()) > 0:
            if stop():
                raise Stopped
            time.sleep(min(left_s, _LOOK_EVERY_S))
