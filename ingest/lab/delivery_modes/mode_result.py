"""What a run found: values that know how they are written as JSON, and which promise of a mode they break."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ingest.lab.delivery_modes.mode_verdict import ModeVerdict


@dataclass(frozen=True)
class Trial:
    """A candidate under a fault. `offered` records were to come in; `struck` is how often the fault hit, `restarts` how often one of
    its processes failed by itself and was started again."""

    mode: str
    fault: str
    offered: int
    struck: int
    restarts: int
    seconds: float
    verdict: ModeVerdict

    @property
    def broken(self) -> tuple[str, ...]:
        """The promises of the mode that did not hold."""
        found = []
        if self.mode != "at_most_once" and self.verdict.lost:
            found.append(f"{self.verdict.lost} lost")
        if self.mode in ("at_most_once", "exactly_once") and self.verdict.doubled:
            found.append(f"{self.verdict.doubled} doubled")
        if self.mode == "exactly_once" and self.verdict.reordered:
            found.append(f"{self.verdict.reordered} reordered")
        if self.verdict.lost_though_reported:
            found.append(f"{self.verdict.lost_though_reported} lost that were told as delivered")
        return tuple(found)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        plain = {name: value for name, value in asdict(self).items() if name != "verdict"}
        return {**plain, **asdict(self.verdict), "broken": list(self.broken)}


@dataclass(frozen=True)
class Latency:
    """Milliseconds from when a record was due to when a reader of committed records had it, at `offered_per_s` records a second."""

    offered_per_s: float
    records: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class Speed:
    """A candidate at full speed. `group` records are sent, then waited for (exactly_once: are a transaction); None: nobody waits but at
    the end (exactly_once: `Grouped` as it comes, 1,000 records or 100 ms). `of_same` is relative to at_most_once with the same groups,
    `of_forget` to at_most_once that never waits, both medians of rounds."""

    mode: str
    group: int | None
    records_per_s: float
    of_same: float
    of_forget: float
    latency: Latency


@dataclass(frozen=True)
class Claim:
    """What is written elsewhere about a mode's throughput, as a part of fire-and-forget, and what was measured (by a quick run: met)."""

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
    """A whole run, with what is needed to repeat it."""

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
        """Trials in which a mode did not keep what it promises."""
        return tuple(trial for trial in self.trials if trial.broken)

    @property
    def caveat(self) -> str | None:
        """What keeps the throughput and latency of this run from being quoted; what was lost, doubled and reordered counts all the same."""
        if not self.quick:
            return None
        return (
            f"quick run: throughput, latency and their ratios are no measurements ({self.rounds} round(s) of {self.seconds:g} s); "
            "run without --quick for such as can be quoted"
        )

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The written claims, each beside what this run measured."""
        of = {(speed.mode, speed.group): speed.of_forget for speed in self.speeds}
        wanted = (("at_least_once", 0.8, 0.9), ("idempotent", 0.8, 0.9), ("exactly_once", 0.5, 0.7))
        return tuple(Claim(mode, None, low, high, of[mode, None], self.quick) for mode, low, high in wanted if (mode, None) in of)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: everything."""
        return {
            **asdict(self),
            "caveat": self.caveat,
            "trials": [trial.as_dict() for trial in self.trials],
            "claims": [{**asdict(claim), "says": claim.says} for claim in self.claims],
        }
