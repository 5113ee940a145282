"""The schedule of faults: an endless sequence that depends only on the seed and the chosen faults.

The same seed gives the same faults with the same numbers. The state that a fault meets (the current batch, the broker's next write)
also depends on the machine's speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from ingest.runtime.errors import InvalidInput

# Relative frequencies. Driver kills are the most frequent, because they meet the most states.
WEIGHTS: Final = {
    "kill-driver": 5,
    "kill-python": 3,
    "kill-jvm": 3,
    "lose-checkpoints": 2,
    "damage-index": 3,
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
    "topic-joins": 2,
}
FAULTS: Final = tuple(WEIGHTS)
# Share of the driver's faults that may hit a start before it has its locks. The others wait for the locks first.
STARTING_SHARE: Final = 0.15
WORK_S_MAX: Final = 6.0
HOLD_S_MAX: Final = 6.0


@dataclass(frozen=True)
class ScheduledFault:
    """One fault to inject.

    `starting` allows it to hit a driver that is still starting. `wait_s` seconds pass between the state that the fault waits for and
    its injection. `hold_s` is the duration of a pause, an outage or a full disk in seconds. `chance` (0 to 1) decides the rest: how a
    reply is lost, how far the clock is off.
    """

    number: int
    name: str
    starting: bool
    wait_s: float
    hold_s: float
    chance: float


def schedule(seed: str, faults: Sequence[str]) -> Iterator[ScheduledFault]:
    """An endless sequence of faults."""
    random = Random(f"chaos/{seed}")
    names = [fault for fault in FAULTS if fault in faults]  # the order in which the user names them does not matter
    weights = [WEIGHTS[name] for name in names]
    number = 0
    while True:
        (fault,) = random.choices(names, weights)
        starting = random.random() < STARTING_SHARE
        wait_s, hold_s, chance = random.uniform(0, WORK_S_MAX), random.uniform(0, HOLD_S_MAX), random.random()
        yield ScheduledFault(number, fault, starting, round(wait_s, 3), round(hold_s, 3), round(chance, 6))
        number += 1


def chosen(text: str | None) -> tuple[str, ...]:
    """The faults named in `kill-driver,clock`, in the order of FAULTS; None: all. Raises InvalidInput CHAOS_FAULT."""
    if text is None:
        return FAULTS
    asked = {part.strip() for part in text.split(",") if part.strip()}
    unknown = sorted(asked - set(FAULTS))
    if unknown or not asked:
        raise InvalidInput(
            "CHAOS_FAULT",
            f"--faults {text!r} names {'no fault' if not asked else 'unknown faults: ' + ', '.join(unknown)}.",
            expected=f"some of {', '.join(FAULTS)}, separated by commas.",
            remedy="correct --faults, or leave it out for all of them.",
        )
    return tuple(fault for fault in FAULTS if fault in asked)
