"""A clock that is wrong, for one process and its children: by a small library of ours, else by libfaketime, else not at all.

Ours is compiled with the machine's C compiler (`clock_shift.c`). libfaketime does the same and more, and makes each look at a
clock so slow that a JVM takes several times as long to start, hence the order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("clock_shift.c")
SHIFT: Final = "INGEST_CHAOS_CLOCK_SHIFT_S"
FAKETIME_PLACES: Final = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
# Names another place of libfaketime, and asks for it.
FAKETIME_VARIABLE: Final = "INGEST_CHAOS_LIBFAKETIME"
DAY_S: Final = 86_400
COMPILE_WITHIN_S: Final = 60.0


def library(folder: Path) -> Path | None:
    """What moves a clock here, made in `folder` where it is ours; None if neither a compiler nor libfaketime is there (or no Linux)."""
    if sys.platform != "linux":
        return None
    if (named := os.environ.get(FAKETIME_VARIABLE)) is not None:
        return Path(named) if Path(named).is_file() else None
    return _compiled(folder / "clock_shift.so") or next((Path(path) for place in FAKETIME_PLACES for path in sorted(glob(place))), None)


def moved(preload: Path, chance: float) -> dict[str, str]:
    """The environment of a process that lives up to a day behind (`chance` 0) or ahead (1)."""
    return shifted(preload, round((2 * chance - 1) * DAY_S))


def shifted(preload: Path, shift_s: int) -> dict[str, str]:
    """The environment of a process whose clock is so many seconds ahead (negative: behind)."""
    # Timeouts and polls use the monotonic clock, which no administrator ever moves.
    faketime = {"FAKETIME": f"{shift_s:+d}", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
    return {"LD_PRELOAD": str(preload), SHIFT: str(shift_s), **faketime}


def _compiled(made: Path) -> Path | None:
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMPILE_WITHIN_S, check=False)
    return made if done.returncode == 0 else None
