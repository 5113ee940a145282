"""Measures the throughput and latency of all candidates, alternating in rounds, on one broker."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.delivery_modes import candidate, reader
from ingest.lab.delivery_modes.load import PARTITIONS, Load
from ingest.lab.delivery_modes.mode_result import Latency, Speed
from ingest.lab.delivery_modes.mode_verdict import stuck
from ingest.lab.process import launch

SIZES: Final = (1, 10, 100, 1_000, 10_000)
# Latency is measured at half of the candidate's throughput. At full throughput it would only show the length of a queue.
LOAD_OF_LIMIT: Final = 0.5
_READ_WITHIN_S: Final = 60.0

Combination: TypeAlias = tuple[str, int | None]


def measure(
    broker: Broker, folder: Path, *, sizes: Sequence[int], seconds: float, rounds: int, seed: int, say: Callable[[str], object]
) -> tuple[Speed, ...]:
    """Measure all candidates with all group sizes and without groups. The first round is a short warm-up and does not count.

    Raises RunStopped TRIAL_STUCK and the errors of the producers.
    """
    combinations = [(mode, group) for group in (None, *sizes) for mode in candidate.NAMES]
    rates: dict[Combination, list[float]] = {each: [] for each in combinations}
    for number in range(rounds + 1):
        topic = _topic(broker)
        for mode, group in combinations:
            rate = Load(mode, group, broker.bootstrap_servers, topic, seed).flat_out(seconds if number else seconds / 5)
            if number:
                rates[mode, group].append(rate)
        say(f"throughput: round {number} of {rounds}")
    latencies = _latencies(broker, folder, {each: statistics.median(found) for each, found in rates.items()}, seconds, seed, say)
    return tuple(
        Speed(
            mode,
            group,
            round(statistics.median(rates[mode, group]), 1),
            _ratio(rates[mode, group], rates["at_most_once", group]),
            _ratio(rates[mode, group], rates["at_most_once", None]),
            latencies[mode, group],
        )
        for mode, group in combinations
    )


def _ratio(rates: Sequence[float], base: Sequence[float]) -> float:
    """The median of the ratios of each round, because the machine's speed differs between rounds."""
    return round(statistics.median(one / other for one, other in zip(rates, base, strict=True)), 3)


def _latencies(
    broker: Broker, folder: Path, limits: dict[Combination, float], seconds: float, seed: int, say: Callable[[str], object]
) -> dict[Combination, Latency]:
    topic, log = _topic(broker), folder / "reader.log"
    command = [sys.executable, "-m", reader.__name__, broker.bootstrap_servers, topic]
    process, _ = launch(command, marker=reader.__name__, output=log, cwd=Path.cwd(), die_with_parent=True)
    found: dict[Combination, Latency] = {}
    try:
        _line(process, log, lambda line: line == "ready")
        for series, ((mode, group), limit) in enumerate(limits.items()):
            per_s = limit * LOAD_OF_LIMIT
            # At least two groups: in a single one, every record would wait for the last.
            records = max(int(per_s * seconds), 2 * (group or 1), 20)
            records -= records % (group or 1)
            key = f"{series}/{records}"
            Load(mode, group, broker.bootstrap_servers, topic, seed).paced(per_s, records, key.encode())
            line = _line(process, log, lambda line: f'"key": "{key}"' in line)  # noqa: B023
            reported: dict[str, Any] = json.loads(line)
            del reported["key"]
            found[mode, group] = Latency(round(per_s, 1), **reported)
            if mode == candidate.NAMES[-1]:
                say(f"latency: {'without groups' if group is None else f'groups of {group:,}'}")
    finally:
        process.kill()
        process.wait(30)
    return found


def _line(process: subprocess.Popen[bytes], log: Path, wanted: Callable[[str], bool]) -> str:
    deadline = time.monotonic() + _READ_WITHIN_S
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        lines = text[: text.rfind("\n") + 1].splitlines()  # a line without an end is still being written
        if (line := next(filter(wanted, lines), None)) is not None:
            return line
        if process.poll() is not None or time.monotonic() > deadline:
            raise stuck(f"the reader has not seen all records within {_READ_WITHIN_S:g} s; its last lines: {' / '.join(lines[-2:])}")
        time.sleep(0.02)


def _topic(broker: Broker) -> str:
    name = f"load-{uuid.uuid4().hex[:10]}"
    broker.create_topic(name, PARTITIONS)
    return name
