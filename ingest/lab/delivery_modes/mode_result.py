"""The results of a run: values that convert to JSON and know which promises of a mode were broken."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ingest.lab.delivery_modes.mode_verdict import ModeVerdict


@dataclass(frozen=True)
class Trial:
    """A candidate under a fault: `offered` records were to be sent.

    `struck` counts how often the fault hit, `restarts` how often one of its processes failed by itself and was restarted.
    """

    mode: str
    fault: str
    offered: int
    struck: int
    restarts: int
    seconds: float
    verdict: ModeVerdict

    @property
    def broken(self) -> tuple[str, ...]:
        """The broken promises of the mode, as texts."""
        found = []
        if self.mode != "at_most_once" and self.verdict.lost:
            found.append(f"{self.verdict.lost} lost")
        if self.mode in ("at_most_once", "exactly_once") and self.verdict.doubled:
            found.append(f"{self.verdict.doubled} doubled")
        if self.mode == "exactly_once" and self.verdict.reordered:
            found.append(f"{self.verdict.reordered} reordered")
        if self.verdict.lost_though_reported:
            found.append(f"{self.verdict.lost_though_reported} lost that were reported as delivered")
        return tuple(found)

    def as_dict(self) -> dict[str, Any]:
        """The trial for `--json`."""
        plain = {name: value for name, value in asdict(self).items() if name != "verdict"}
        return {**plain, **asdict(self.verdict), "broken": list(self.broken)}


@dataclass(frozen=True)
class Latency:
    """Milliseconds from a record's due time until a read_committed reader had it, at `offered_per_s` records per second."""

    offered_per_s: float
    records: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class Speed:
    """A candidate at full speed.

    The sender waits after each `group` records (exactly_once: one transaction per group). With None it waits only at the end (exactly_once:
    `Grouped` with its defaults, 1,000 records or 100 ms). `of_same` is the throughput relative to at_most_once with the same groups,
    `of_forget` relative to at_most_once that never waits; both are medians over the rounds.
    """

    mode: str
    group: int | None
    records_per_s: float
    of_same: float
    of_forget: float
    latency: Latency


@dataclass(frozen=True)
class Claim:
    """A published claim about a mode's throughput, as a share of fire-and-forget, and the measured share (in a quick run: not valid)."""

    mode: str
    group: int | None
    low: float
    high: float
    measured: float
    quick: bool = False

    @property
    def says(self) -> str:
        if self.quick:
            return "not measured"
        if self.measured < self.low:
            return "less"
        return "more" if self.measured > self.high else "as claimed"


@dataclass(frozen=True)
class ModeResult:
    """A whole run, with the settings that are needed to repeat it."""

    seed: int
    records: int
    group: int
    seconds: float
    rounds: int
    machine: dict[str, Any]
    trials: tuple[Trial, ...]
    speeds: tuple[Speed, ...]
    quick: bool = False

    @property
    def broken(self) -> tuple[Trial, ...]:
        """Trials in which a mode broke a promise."""
        return tuple(trial for trial in self.trials if trial.broken)

    @property
    def caveat(self) -> str | None:
        """Why the throughput and latency of a quick run must not be quoted, else None. The counts of lost records etc. are valid."""
        if not self.quick:
            return None
        return (
            f"quick run: throughput, latency and their ratios are no measurements ({self.rounds} round(s) of {self.seconds:g} s); "
            "run without --quick for figures that can be quoted"
        )

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The published claims, each with the share that this run measured."""
        of = {(speed.mode, speed.group): speed.of_forget for speed in self.speeds}
        wanted = (("at_least_once", 0.8, 0.9), ("idempotent", 0.8, 0.9), ("exactly_once", 0.5, 0.7))
        return tuple(Claim(mode, None, low, high, of[mode, None], self.quick) for mode, low, high in wanted if (mode, None) in of)

    def as_dict(self) -> dict[str, Any]:
        """The whole result for `--json`."""
        return {
            **asdict(self),
            "caveat": self.caveat,
            "trials": [trial.as_dict() for trial in self.trials],
            "claims": [{**asdict(claim), "says": claim.says} for claim in self.claims],
        }
