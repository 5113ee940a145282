"""The tables of a run, as titles and cells, for the terminal and for the HTML page."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.lab.delivery_modes.candidate import named
from ingest.lab.delivery_modes.mode_fault import FAULTS
from ingest.lab.delivery_modes.mode_result import ModeResult, Speed, Trial
from ingest.runtime.printable import aligned


@dataclass(frozen=True)
class TextTable:
    """A table with a title and, below it, a `note` that explains how to read it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str

    def text(self) -> str:
        """The table as text with aligned columns, the first two left-aligned."""
        lines = aligned([self.heads, *self.rows], right=range(2, len(self.heads)))
        return "\n".join([self.title, "", *(f"  {line}" for line in lines), "", *(f"  {each}" for each in self.note.splitlines())])


def tables(result: ModeResult) -> list[TextTable]:
    """All tables, in reading order."""
    found = []
    caveat = f"{result.caveat}\n" if result.caveat else ""
    if result.trials:
        found.append(
            TextTable(
                f"Harm by fault: {result.records:,} records in groups of {result.group}, seed {result.seed}",
                ("fault", "mode", "lost", "doubled", "reordered", "only uncommitted", "struck", "restarts", "promise"),
                tuple(map(_trial, result.trials)),
                "lost, doubled, reordered: as a read_committed reader sees it; reordered counts first copies behind a later record\n"
                "only uncommitted: aborted records, which only a read_uncommitted reader sees\n"
                "struck: how often the fault hit; at_most_once gets no replies, so none can be lost\n"
                "restarts: processes that failed by themselves and were restarted",
            )
        )
    found.append(
        TextTable(
            f"Cost by mode: median of {result.rounds} round(s) of {result.seconds:g} s, {result.machine['cores']} cores shared with "
            "the broker",
            ("group", "mode", "records/s", "of at_most_once", "of fire-and-forget", "at/s", "p50 ms", "p95 ms", "p99 ms"),
            tuple(map(_speed, result.speeds)),
            caveat
            + "group: records that are sent before the sender waits (exactly_once: a transaction); none: it never waits, and exactly_once\n"
            "  commits every 1,000 records or 100 ms\n"
            "of at_most_once: with the same groups; of fire-and-forget: at_most_once that never waits\n"
            "latency: from a record's due time until a read_committed reader had it, at half of the throughput (at/s)",
        )
    )
    if result.claims:
        found.append(
            TextTable(
                "Published claims: throughput as a share of fire-and-forget",
                ("mode", "result", "claim", "measured"),
                tuple((named(each.mode), each.says, f"{each.low:.0%}–{each.high:.0%}", f"{each.measured:.0%}") for each in result.claims),
                caveat + "without groups; exactly once in transactions of 1,000 records or 100 ms",
            )
        )
    return found


def _trial(trial: Trial) -> tuple[str, ...]:
    verdict = trial.verdict
    words = next((fault.words for fault in FAULTS if fault.name == trial.fault), trial.fault)
    counts = (verdict.lost, verdict.doubled, verdict.reordered, verdict.hidden, trial.struck, trial.restarts)
    kept = "kept" if not trial.broken else f"BROKEN: {', '.join(trial.broken)}"
    return (words, named(trial.mode), *(f"{count:,}" for count in counts), kept)


def _speed(speed: Speed) -> tuple[str, ...]:
    late = speed.latency
    return (
        "none" if speed.group is None else f"{speed.group:,}",
        named(speed.mode),
        f"{speed.records_per_s:,.0f}",
        f"{speed.of_same:.2f}",
        f"{speed.of_forget:.3f}",
        f"{late.offered_per_s:,.0f}",
        *(f"{each:,.1f}" for each in (late.p50_ms, late.p95_ms, late.p99_ms)),
    )
