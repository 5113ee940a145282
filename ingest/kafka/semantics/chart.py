"""The three charts of a run: what faults did, how fast each mode is, and how long its records take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from ingest.kafka.semantics import candidate
from ingest.kafka.semantics.drawing import FAINT, Box, Drawing, Path, Words, stacked
from ingest.kafka.semantics.result import Result, Speed, Trial

# Okabe and Ito's colours: told apart by eyes that see few, and on grey paper.
COLORS: Final = {"at_most_once": "#999999", "at_least_once": "#e69f00", "idempotent": "#56b4e9", "exactly_once": "#0072b2"}
HARMS: Final = (("lost", "#d55e00"), ("doubled", "#e69f00"), ("reordered", "#56b4e9"))

WIDTH: Final = 860
_LEFT: Final = 190
_RIGHT: Final = 90
_ROW: Final = 22


def charts(result: Result) -> list[Drawing]:
    """What this run has data for."""
    found = [harm_chart(result.trials)] if result.trials else []
    if any(speed.group is not None for speed in result.speeds):
        # In each title, since a picture is shown without the words around it.
        quick = " (quick run, no measurement)" if result.quick else ""
        found += [
            line_chart(f"{title}{quick}", result.speeds, value, shown)
            for title, value, shown in (
                ("Throughput, records a second", lambda speed: speed.records_per_s, "{:,.0f}"),
                ("Throughput, as a part of at most once with the same groups", lambda speed: speed.of_same, "{:.2f}"),
                ("Latency, median of due to read, ms", lambda speed: speed.latency.p50_ms, "{:,.1f}"),
                ("Latency, 99 of 100 records within, ms", lambda speed: speed.latency.p99_ms, "{:,.1f}"),
            )
        ]
    return found


def picture(result: Result) -> Drawing:
    """All charts in one."""
    return stacked(charts(result), "What each delivery mode costs and keeps")


def named(mode: str) -> str:
    """As people say it."""
    return mode.replace("_", " ")


def harm_chart(trials: Sequence[Trial]) -> Drawing:
    """A bar for each candidate and fault: records lost, doubled and reordered, of those that were to come in."""
    faults = list(dict.fromkeys(trial.fault for trial in trials))
    drawing = Drawing(WIDTH, 70 + sum(30 + _ROW * sum(trial.fault == fault for trial in trials) for fault in faults), "Harm by fault")
    drawing.add(Words(12, 24, "Harm by fault, records", bold=True))
    for place, (word, color) in enumerate(HARMS):
        drawing.add(Box(_LEFT + place * 120, 35, 12, 12, color), Words(_LEFT + 18 + place * 120, 46, word))
    most = max((_harm(trial) for trial in trials), default=0) or 1
    y = 66
    for fault in faults:
        drawing.add(Words(12, y + 12, named(fault), bold=True))
        y += 22
        for trial in (each for each in trials if each.fault == fault):
            drawing.add(Words(_LEFT - 10, y + 12, named(trial.mode), "end"))
            x = float(_LEFT)
            for word, color in HARMS:
                count: int = getattr(trial.verdict, word)
                long = (WIDTH - _LEFT - 3 * _RIGHT) * count / most
                if count:
                    drawing.add(Box(x, y, max(long, 2.0), 15, color))
                    x += max(long, 2.0)
            counts = ", ".join(f"{getattr(trial.verdict, word):,} {word}" for word, _ in HARMS if getattr(trial.verdict, word))
            drawing.add(Words(x + 6, y + 12, counts or "none"))
            y += _ROW
        y += 8
    return drawing


def _harm(trial: Trial) -> int:
    return trial.verdict.lost + trial.verdict.doubled + trial.verdict.reordered


def line_chart(title: str, speeds: Sequence[Speed], value: Callable[[Speed], float], shown: str) -> Drawing:
    """Both axes are logarithms: the records of a group, and `value`; without groups stands at the right end."""
    height, top, bottom = 330, 60, 280
    drawing = Drawing(WIDTH, height, title)
    drawing.add(Words(12, 24, title, bold=True))
    groups = sorted({speed.group for speed in speeds if speed.group is not None})
    columns: list[int | None] = [*groups, *([None] if any(speed.group is None for speed in speeds) else [])]
    step = (WIDTH - _LEFT - _RIGHT) / max(len(columns) - 1, 1)
    across = {group: _LEFT + step * place for place, group in enumerate(columns)}
    low, high = _decades([value(speed) for speed in speeds])

    def down(number: float) -> float:
        return bottom - (bottom - top) * (math.log10(max(number, 10.0**low)) - low) / (high - low)

    for decade in range(low, high + 1):
        y = down(10.0**decade)
        drawing.add(Path(((_LEFT - 20, y), (WIDTH - _RIGHT + 20, y)), FAINT), Words(_LEFT - 28, y + 4, f"{10.0**decade:,g}", "end"))
    for group, x in across.items():
        drawing.add(Words(x, bottom + 24, "no groups" if group is None else f"{group:,}", "middle"))
    drawing.add(Words((_LEFT + WIDTH - _RIGHT) / 2, bottom + 44, "records in a group (exactly once: in a transaction)", "middle"))
    for place, mode in enumerate(candidate.NAMES):
        of_mode = {speed.group: value(speed) for speed in speeds if speed.mode == mode}
        points = [(across[group], down(of_mode[group])) for group in columns if group in of_mode]
        with_groups = points[:-1] if None in of_mode else points
        drawing.add(Path(tuple(with_groups), COLORS[mode], 2.0))
        drawing.add(*(Box(x - 4, y - 4, 8, 8, COLORS[mode]) for x, y in points))
        drawing.add(Box(_LEFT + place * 150, 35, 12, 12, COLORS[mode]), Words(_LEFT + 18 + place * 150, 46, named(mode)))
    at_the_end = sorted((down(value(speed)), value(speed)) for speed in speeds if speed.group is None)
    lowest = 0.0
    for y, number in at_the_end:
        lowest = max(y + 4, lowest + 14)  # so that none covers another
        drawing.add(Words(WIDTH - _RIGHT + 10, lowest, shown.format(number)))
    return drawing


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low = math.floor(math.log10(max(min(values), 1e-3)))
    return low, max(math.ceil(math.log10(max(*values, 1e-3))), low + 1)
