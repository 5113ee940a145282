"""The page of some summaries: one HTML document that loads nothing. Every value is escaped, because records come from anybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from ingest.observe.report import time_charts
from ingest.observe.report.evidence import LastProof, QualityRun
from ingest.observe.report.recent_batches import BATCHES_MAX
from ingest.observe.report.summary import LATE_MAX, Summaries, Summary
from ingest.observe.report.time_charts import Drawn
from ingest.runtime.errors import IngestError

RUNS_MAX = 10
Badge = tuple[str, str]
# Why an epoch began, as its ledger row says.
WHYS = {"first": "the first start", "start": "a start", "seek": "a seek", "replay": "a replay of the quarantine", "rebuild": "a rebuild"}


@dataclass(frozen=True)
class View:
    """One table as the page shows it: its summary with charts and texts, or its error. `docs` is the address of its Data Docs."""

    id: str
    name: str
    summary: Summary | None = None
    error: IngestError | None = None
    charts: tuple[Drawn, ...] = ()
    docs: str | None = None
    state: Badge = ("plain", "")
    quality: Badge = ("plain", "")
    proof: Badge = ("plain", "")
    held: Badge | None = None
    lag: str = ""
    records_per_s: str = "none"
    latency_median: str = "none"
    latency_p99: str = "none"
    batch_median: str = "none"
    batch_longest: str = "none"

    def page_of(self, run: QualityRun) -> str:
        """The address of a validation run's page."""
        assert self.docs is not None and run.page is not None
        return f"{self.docs.rpartition('/')[0]}/{quote(run.page)}"


def page(found: Summaries, lake: str, hours: float, docs: Callable[[Summary], str | None], nonce: str = "", every_s: int = 0) -> str:
    """The document. `docs` gives the address of a table's Data Docs. With `nonce` the page refreshes itself every `every_s` seconds."""
    environment = Environment(
        loader=PackageLoader("ingest.observe.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": _number, "size": _size, "stamp": lambda text: text[:19].replace("T", " ")}
    views = [_view(number, each, docs(each)) for number, each in enumerate(found.tables, 1)]
    views += [View(f"error-{number}", name, error=error) for number, (name, error) in enumerate(found.errors.items(), 1)]
    return environment.get_template("page.html.j2").render(
        views=views, lake=lake, made_at=found.made_at, hours="hour" if hours == 1 else f"{hours:g} hours", whys=WHYS, runs_max=RUNS_MAX,
        run_badge=_run_badge, batches_max=BATCHES_MAX, late_max=LATE_MAX, live=bool(nonce), nonce=nonce, every_s=every_s,
    )  # fmt: skip


def _view(number: int, summary: Summary, docs: str | None) -> View:
    id, status, recent = f"table-{number}", summary.status, summary.recent
    texts: dict[str, Any] = {}
    if recent is not None:
        texts = {
            "records_per_s": f"{recent.records_per_s:,.0f}",
            "latency_median": _seconds(recent.latency_median_s),
            "latency_p99": _seconds(recent.latency_p99_s),
            "batch_median": _seconds(recent.batch_median_s),
            "batch_longest": _seconds(recent.batch_longest_s),
        }
    return View(
        id,
        summary.table,
        summary,
        charts=tuple(_charts(id, summary)),
        docs=docs,
        state=_state(summary),
        quality=_run_badge(summary.quality[0], "quality: ") if summary.quality else ("plain", "never checked"),
        proof=_proof(summary.proof),
        held=("bad", f"held since {held.since[:10]}") if (held := summary.audit.held) is not None else None,
        lag="unknown" if status.lag is None else _number(status.lag),
        **texts,
    )


def _charts(id: str, summary: Summary) -> list[Drawn]:
    buckets, recent = summary.figures.buckets, summary.recent
    drawn = [time_charts.throughput(f"{id}-throughput", buckets)] if buckets else []
    if recent is not None:
        drawn.append(time_charts.latency(f"{id}-latency", recent.batches))
        drawn.append(time_charts.batch_time(f"{id}-batch-time", recent.batches))
    if any(each.interval_median_s is not None for each in buckets):
        drawn.append(time_charts.intervals(f"{id}-intervals", buckets))
    if summary.quality:
        drawn.append(time_charts.quality(f"{id}-quality", summary.quality))
    return drawn


def _state(summary: Summary) -> Badge:
    if summary.status.next == "refuse" and summary.status.refusal is not None:
        return "bad", f"refused: {summary.status.refusal['code']}"
    if summary.status.running:
        return "ok", "running"
    return "plain", "not running" if summary.status.target_version is not None else "no table yet"


def _run_badge(run: QualityRun, label: str = "") -> Badge:
    if run.critical:
        return "bad", f"{label}{run.critical} critical failed"
    return ("warn", f"{label}{run.failed} failed") if run.failed else ("ok", f"{label}passed")


def _proof(proof: LastProof | None) -> Badge:
    if proof is None:
        return "plain", "no proof file"
    if not proof.sha256:
        return "warn", "proof not readable"
    if proof.ok is None:
        return "bad", "proof altered"
    if not proof.chained:
        return "bad", "proof chain broken"
    # Not "proven": a chain shows what was changed in it, not who wrote it. The hash is what a reader can compare with one kept elsewhere.
    return ("ok", f"chained {proof.sha256[:8]}") if proof.ok else ("bad", "balance does not hold")


def _number(value: int) -> str:
    return f"{value:,}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "none"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:.2f} s"


def _size(value: int) -> str:
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:,.0f} B" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"
