"""The clock of leases and deadlines."""

from __future__ import annotations

import sys
import time
from typing import Final

# Unlike the monotonic clock, it goes on while the machine is suspended.
_CLOCK: Final = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC


def uptime() -> float:
    """Seconds since some moment, the same one until the machine is restarted. Nobody can set this clock."""
    return time.clock_gettime(_CLOCK)
