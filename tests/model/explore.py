"""Explore schedules: `python -m tests.model.explore --seed 7 --schedules 1000`. Exit code 1 if a guarantee was broken.

Schedule n of a seed is the walk `seed * 1_000_003 + n`; `--only n` replays only that one.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.model.schedule import shrunk, walk

SPREAD = 1_000_003
CLEAN = "no promise broken"


@dataclass(frozen=True)
class Explored:
    """Numbers of schedules and operations, of violations per guarantee, and how often each accepted limit was met."""

    schedules: int
    operations: int
    found: Counter[str]
    known: Counter[str]


def explore(seed: int, numbers: Sequence[int], show: int) -> Explored:
    """Play these schedules of a seed and print each violation. The first `show` of them are reduced to a small schedule."""
    found: Counter[str] = Counter()
    known: Counter[str] = Counter()
    operations = 0
    gc.disable()  # no object here outlives its schedule
    for count, number in enumerate(numbers):
        if count % 2000 == 0:
            gc.collect()
        schedule, world, violation = walk(seed * SPREAD + number)
        operations += len(schedule.ops)
        known.update(world.invariants.excused)
        if violation is not None:
            found[violation.promise] += 1
            small = f"\n{shrunk(schedule, violation.promise)}\n" if sum(found.values()) <= show else ""
            print(f"schedule {number} of seed {seed}: {violation}{small}", flush=True)
    gc.enable()
    return Explored(len(numbers), operations, found, known)


def main() -> int:
    """Explore schedules and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--only", type=int, help="number of the only schedule of this seed to play")
    parser.add_argument("--show", type=int, default=3, help="number of violations to reduce and show (default 3)")
    options = parser.parse_args()
    began = time.monotonic()
    explored = explore(options.seed, range(options.schedules) if options.only is None else [options.only], options.show)
    played = f"{explored.schedules} schedules, {explored.operations} operations, {time.monotonic() - began:.0f} s"
    print(f"seed {options.seed}: {played}: {counted(explored.found) or CLEAN}")
    if explored.known:
        print(f"limits met: {counted(explored.known)}")
    return 1 if explored.found else 0


def counted(names: Counter[str]) -> str:
    """Counts as text, as in `I6 1, LOST 2`; empty if there are none."""
    return ", ".join(f"{name} {count}" for name, count in sorted(names.items()))


if __name__ == "__main__":
    raise SystemExit(main())
