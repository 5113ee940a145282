"""A whole run: every candidate under every fault, then the speed of all candidates, on a separate embedded broker."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from ingest import __version__
from ingest.delivery.kafka.mode import compression
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.delivery_modes import candidate
from ingest.lab.delivery_modes.mode_fault import FAULTS, ModeFault
from ingest.lab.delivery_modes.mode_result import ModeResult, Trial
from ingest.lab.delivery_modes.speed import SIZES, measure
from ingest.lab.delivery_modes.stage import Stage
from ingest.runtime.errors import InvalidInput

RECORDS_MIN: Final = 100


@dataclass(frozen=True)
class Size:
    """The size of a run: each trial offers `records` records in groups of `group`; speed is measured for `seconds` in `rounds` rounds.

    `sizes` are the group sizes of the speed measurement. `quick` marks a run that is too short for valid throughput and latency. Raises
    InvalidInput SEMANTICS_SIZE.
    """

    records: int = 2_000
    group: int = 100
    seconds: float = 1.5
    rounds: int = 3
    sizes: tuple[int, ...] = SIZES
    quick: bool = False

    def __post_init__(self) -> None:
        if self.records < RECORDS_MIN or not 1 <= self.group <= self.records // 10:
            raise InvalidInput(
                "SEMANTICS_SIZE",
                f"{self.records} records in groups of {self.group}.",
                expected=f"at least {RECORDS_MIN} records and ten groups, so that a fault can strike in the middle.",
                remedy="choose more --records, or a smaller --group.",
            )

    def of(self, records: int | None, group: int | None) -> Size:
        """The same size with other trials; a group size that is not given shrinks with the records."""
        wanted = records or self.records
        return replace(self, records=wanted, group=group or max(min(self.group, wanted // 10), 1))


FULL: Final = Size()
QUICK: Final = Size(records=300, group=20, seconds=0.3, rounds=1, sizes=(1, 100, 1_000), quick=True)


def chosen(names: Sequence[str]) -> tuple[ModeFault, ...]:
    """The faults with these names, or all faults if no name is given. Raises InvalidInput FAULT_UNKNOWN."""
    known = {fault.name: fault for fault in FAULTS}
    for name in names:
        if name not in known:
            expected = f"one of {', '.join(known)}."
            raise InvalidInput("FAULT_UNKNOWN", f"there is no fault {name!r}.", expected=expected, remedy="correct --fault.")
    return tuple(fault for name, fault in known.items() if name in names) if names else FAULTS


def run(size: Size, *, seed: int, faults: Sequence[ModeFault] = FAULTS, say: Callable[[str], object] = lambda text: None) -> ModeResult:
    """Run the comparison; `say` receives progress messages. Call it from the main thread: the broker and all processes end with it.

    Raises RunStopped TRIAL_STUCK, the InvalidEnvironment errors of the embedded broker, and the errors of the producers.
    """
    with tempfile.TemporaryDirectory(prefix="oncelake-semantics-") as name, Broker(Path(name) / "broker") as broker:
        folder = Path(name)
        trials = tuple(_trial(broker, folder, mode, fault, size, seed, say) for fault in faults for mode in candidate.NAMES)
        speeds = measure(broker, folder, sizes=size.sizes, seconds=size.seconds, rounds=size.rounds, seed=seed, say=say)
    machine = {
        "version": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "codec": compression(),
        "load_after": round(os.getloadavg()[0], 1),
    }
    return ModeResult(seed, size.records, size.group, size.seconds, size.rounds, machine, trials, speeds, size.quick)


def _trial(broker: Broker, folder: Path, mode: str, fault: ModeFault, size: Size, seed: int, say: Callable[[str], object]) -> Trial:
    chance, began = Random(f"{seed}/{fault.name}"), time.monotonic()  # without the mode, so that all modes get the same faults
    with Stage(broker, folder, mode, size.records, size.group) as stage:
        struck = fault.play(stage, chance)
        verdict = stage.verdict(stage.source if fault.harms == "source" else stage.sink)
        trial = Trial(mode, fault.name, size.records, struck, stage.restarts, round(time.monotonic() - began, 1), verdict)
    say(f"{fault.words}, {mode}: {verdict.lost} lost, {verdict.doubled} doubled, {verdict.reordered} reordered")
    return trial
