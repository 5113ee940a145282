"""A wrong clock for one process and its children, by a small preloaded library (`clock_shift.c`) that the local C compiler builds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("clock_shift.c")
SHIFT: Final = "INGEST_CHAOS_CLOCK_SHIFT_S"
DAY_S: Final = 86_400
COMPILE_WITHIN_S: Final = 60.0


def library(folder: Path) -> Path | None:
    """Build the library in `folder`; None without a C compiler, on a failed build, or outside Linux."""
    compiler = shutil.which("cc") if sys.platform == "linux" else None
    if compiler is None:
        return None
    made = folder / "clock_shift.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMPILE_WITHIN_S, check=False)
    return made if done.returncode == 0 else None


def moved(preload: Path, chance: float) -> dict[str, str]:
    """Environment variables that shift a process's clock, from a day behind (`chance` 0) to a day ahead (1)."""
    return shifted(preload, round((2 * chance - 1) * DAY_S))


def shifted(preload: Path, shift_s: int) -> dict[str, str]:
    """Environment variables that put a process's clock `shift_s` seconds ahead (negative: behind). The monotonic clock is unchanged."""
    return {"LD_PRELOAD": str(preload), SHIFT: str(shift_s)}
