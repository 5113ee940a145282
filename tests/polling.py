"""Nothing sleeps to wait for a state: who waits looks for the state itself, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

POLL_S = 0.02

T = TypeVar("T")


def until(look: Callable[[], T], what: str | Callable[[], str], deadline_s: float) -> T:
    """Poll until `look` returns something true, and return that; fails with `what` after the deadline."""
    deadline = time.monotonic() + deadline_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {deadline_s:.0f} s: {what if isinstance(what, str) else what()}"
        time.sleep(POLL_S)
    return found
