"""Explore schedules: `python -m tests.model.explore --seed 7 --schedules 1000`. Exit code 1 if a promise was broken.

Schedule n of a seed is the walk `seed * 1_000_003 + n`; `--only n` plays that one again.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.model.known import known
from tests.model.schedule import engine_connected, judged, shrunk, walk

SPREAD = 1_000_003


@dataclass(frozen=True)
class Explored:
    """How many schedules were played, and by promise what was broken in them; `known` by the name of the finding."""

    schedules: int
    operations: int
    found: Counter[str]
    known: Counter[str]


def explore(seed: int, numbers: Sequence[int], show: int) -> Explored:
    """Play these schedules of a seed, print what breaks a promise, and make the first `show` of those as small as can be."""
    found: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    operations = 0
    gc.disable()  # nothing here lives longer than its schedule
    with engine_connected():
        for count, number in enumerate(numbers):
            if count % 2000 == 0:
                gc.collect()
            schedule, violation = walk(seed * SPREAD + number)
            operations += len(schedule.ops)
            if violation is not None and (name := known(judged(), violation)):
                seen[name] += 1
            elif violation is not None:
                found[violation.promise] += 1
                small = f"\n{shrunk(schedule, violation.promise)}\n" if sum(found.values()) <= show else ""
                print(f"schedule {number} of seed {seed}: {violation}{small}", flush=True)
    return Explored(len(numbers), operations, found, seen)


def main() -> int:
    """Explore, and print what was found."""
    options = parser_of(__doc__, "schedules", show="how many violations are shrunk and shown (default 3)").parse_args()
    began = time.monotonic()
    explored = explore(options.seed, range(options.schedules) if options.only is None else [options.only], options.show)
    if explored.known:
        print("known: " + counted(explored.known))
    told = counted(explored.found) or "no promise broken"
    took = time.monotonic() - began
    print(f"seed {options.seed}: {explored.schedules} schedules, {explored.operations} operations, {took:.0f} s: {told}")
    return 1 if explored.found else 0


def parser_of(description: str | None, what: str, *, show: str) -> argparse.ArgumentParser:
    """Arguments of a command that plays so many of `what`, or one of them again."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(f"--{what}", type=int, default=1000)
    parser.add_argument("--only", type=int, help=f"the number of one of the {what} of this seed")
    parser.add_argument("--show", type=int, default=3, help=show)
    return parser


def counted(names: Counter[str]) -> str:
    """`LOST 2, STUCK 1`; empty if there are none."""
    return ", ".join(f"{name} {count}" for name, count in sorted(names.items()))


if __name__ == "__main__":
    raise SystemExit(main())
