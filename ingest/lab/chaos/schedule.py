"""Which fault strikes when: an endless sequence that depends on the seed and the chosen faults alone.

What a strike hits (which batch is at work, what the broker was about to write) depends on the machine's speed as well; the
sequence of faults and all their numbers come again with the seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from ingest.runtime.errors import InvalidInput

# Weight: how often, beside the others. Kills of the driver come most often, because they meet the most states.
WEIGHTS: Final = {
    "kill-driver": 5,
    "kill-python": 3,
    "kill-jvm": 3,
    "lose-checkpoints": 2,
    "second-driver": 2,
    "kill-broker": 3,
    "pause-broker": 1,
    "kill-producer": 3,
    "fence-producer": 1,
    "lose-reply": 2,
    "optimize": 1,
    "delete": 1,
    "disk-full": 1,
    "clock": 1,
}
FAULTS: Final = tuple(WEIGHTS)
# One strike on the driver in so many hits a start before it has its locks; the others wait for these first.
STARTING_SHARE: Final = 0.15
WORK_S_MAX: Final = 6.0
HOLD_S_MAX: Final = 6.0


@dataclass(frozen=True)
class ScheduledFault:
    """One blow. `wait_s` passes before it, counted from the state that it waits for; `hold_s` is how long a pause, an absence
    or a full disk lasts; `chance` (0 to 1) decides what else is open (how a reply is lost, how far the clock is off)."""

    number: int
    name: str
    starting: bool
    wait_s: float
    hold_s: float
    chance: float


def schedule(seed: str, faults: Sequence[str]) -> Iterator[ScheduledFault]:
    """Strikes without end."""
    random = Random(f"chaos/{seed}")
    names = [fault for fault in FAULTS if fault in faults]  # the order in which a user names them does not count
    weights = [WEIGHTS[name] for name in names]
    number = 0
    while True:
        (fault,) = random.choices(names, weights)
        starting = random.random() < STARTING_SHARE
        wait_s, hold_s, chance = random.uniform(0, WORK_S_MAX), random.uniform(0, HOLD_S_MAX), random.random()
        yield ScheduledFault(number, fault, starting, round(wait_s, 3), round(hold_s, 3), round(chance, 6))
        number += 1


def chosen(text: str | None) -> tuple[str, ...]:
    """`kill-driver,clock` as names in their order; None: all. Raises InvalidInput CHAOS_FAULT."""
    if text is None:
        return FAULTS
    asked = {part.strip() for part in text.split(",") if part.strip()}
    unknown = sorted(asked - set(FAULTS))
    if unknown or not asked:
        raise InvalidInput(
            "CHAOS_FAULT",
            f"--faults {text!r} names {'no fault' if not asked else 'no fault of ours: ' + ', '.join(unknown)}.",
            expected=f"some of {', '.join(FAULTS)}, with commas between them.",
            remedy="correct --faults, or leave it out for all of them.",
        )
    return tuple(fault for fault in FAULTS if fault in asked)
