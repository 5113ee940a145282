"""Wait for a state by polling for it until a deadline, never by sleeping for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

POLL_S = 0.02

T = TypeVar("T")


def until(look: Callable[[], T], what: str | Callable[[], str], deadline_s: float) -> T:
    """Poll until `look` returns a true value, and return that value. Fails with `what` after the deadline."""
    deadline = time.monotonic() + deadline_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {deadline_s:.0f} s: {what if isinstance(what, str) else what()}"
        time.sleep(POLL_S)
    return found
