"""Charts over time as inline SVG, drawn by Altair and vl-convert, in the colours of the page's light or dark scheme."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import altair as alt
import vl_convert
from markupsafe import Markup, escape

from ingest.observe.report.evidence import QualityRun
from ingest.observe.report.ledger_figures import Bucket
from ingest.observe.report.recent_batches import BatchTimes

WIDTH, HEIGHT = 380, 200
# vl-convert draws with these colours, and the SVG then gets the page's variables in their place: Vega reads no CSS.
COLORS: Final = {
    "--chart-1": "#010101",
    "--chart-2": "#010102",
    "--chart-3": "#010103",
    "--chart-grid": "#010104",
    "--chart-text": "#010105",
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Drawn:
    """A chart: its title, a sentence that describes it, the SVG, and the same figures as a table."""

    id: str
    title: str
    description: str
    svg: Markup
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def throughput(id: str, buckets: Sequence[Bucket]) -> Drawn:
    """Records per second by outcome, as stacked bars."""
    kinds = {"inserted": "--chart-1", "duplicate": "--chart-2", "quarantined": "--chart-3"}
    rows: list[Row] = []
    for each in buckets:
        low = 0.0
        for kind in kinds:
            high = low + getattr(each, kind) / each.seconds
            rows.append({"at": each.at, "end": _end(each), "low": low, "high": high, "kind": kind})
            low = high
    times = [buckets[0].at, _end(buckets[-1])]
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(orient="vertical", binSpacing=0)
    chart = bars.encode(_time("at", times), alt.X2("end"), _amount("low", "records/s"), alt.Y2("high"), _color(kinds))
    names = ("records_read", *kinds, "gap", "batches")
    table = tuple((each.at, *(f"{getattr(each, name):,}" for name in names)) for each in buckets)
    description = f"Records per second by outcome, each bar over {_span(buckets[0].seconds)}."
    return _drawn(id, "Throughput", description, chart, ("from (UTC)", "read", *names[1:]), table)


def intervals(id: str, buckets: Sequence[Bucket]) -> Drawn:
    """The time from one commit to the next."""
    timed = [each for each in buckets if each.interval_median_s is not None]
    figures = {"median": [each.interval_median_s for each in timed], "longest": [each.interval_longest_s for each in timed]}
    lines = _lines([each.at for each in timed], figures, "seconds")
    table = tuple((each.at, _seconds(each.interval_median_s), _seconds(each.interval_longest_s)) for each in timed)
    description = "Time from one commit to the next in the same epoch. It contains the wait for new records."
    return _drawn(id, "Time between commits", description, lines, ("from (UTC)", "median", "longest"), table)


def latency(id: str, batches: Sequence[BatchTimes]) -> Drawn:
    """The latency of the newest batches."""
    figures = {"median": [each.latency_median_s for each in batches], "99th percentile": [each.latency_p99_s for each in batches]}
    lines = _lines([each.at for each in batches], figures, "seconds")
    table = tuple(
        (each.at, each.id, f"{each.rows:,}", _seconds(each.latency_median_s), _seconds(each.latency_p99_s), _seconds(each.batch_s))
        for each in batches
    )
    description = "Time from a record's Kafka timestamp to the commit of its row, for the newest batches."
    heads = ("committed (UTC)", "batch", "rows", "median latency", "99th percentile", "batch time")
    return _drawn(id, "Latency", description, lines, heads, table)


def batch_time(id: str, batches: Sequence[BatchTimes]) -> Drawn:
    """The time that the newest batches took."""
    rows = [{"at": each.at, "value": each.batch_s} for each in batches]
    line = alt.Chart(alt.Data(values=rows)).mark_line(point=_points(len(rows)), color=COLORS["--chart-1"], strokeWidth=1.5)
    chart = line.encode(_time("at", [each.at for each in batches]), _amount("value", "seconds"))
    table = tuple((each.at, each.id, f"{each.records_read:,}", _seconds(each.batch_s)) for each in batches)
    description = "Time from Spark's plan of a batch to its commit, for the newest batches."
    return _drawn(id, "Batch time", description, chart, ("committed (UTC)", "batch", "read", "batch time"), table)


def quality(id: str, runs: Sequence[QualityRun]) -> Drawn:
    """Expectations of each validation run by result, oldest first."""
    kinds = {"passed": "--chart-1", "failed": "--chart-2", "failed, critical": "--chart-3"}
    ordered = list(reversed(runs))
    values = [(each.expectations - each.failed, each.failed - each.critical, each.critical) for each in ordered]
    rows = [
        {"run": number, "value": value, "kind": kind, "order": order}
        for number, counts in enumerate(values, 1)
        for order, (kind, value) in enumerate(zip(kinds, counts, strict=True))
    ]
    shown = list(range(1, len(runs) + 1, 1 + len(runs) // 10))
    axis = alt.Axis(labelAngle=0, title="validation run", values=shown)
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(alt.X("run:O", axis=axis), _amount("value", "expectations"), _color(kinds), alt.Order("order:Q"))
    )
    table = tuple((each.at, each.run_id, *map(str, counts)) for each, counts in zip(ordered, values, strict=True))
    description = "Expectations of each validation run by result, the newest run at the right."
    return _drawn(id, "Quality", description, bars, ("run at (UTC)", "run", *kinds), table)


def _lines(times: Sequence[str], figures: Mapping[str, Sequence[float | None]], unit: str) -> alt.Chart:
    rows = [{"at": at, "value": value, "kind": kind} for kind, values in figures.items() for at, value in zip(times, values, strict=True)]
    colors = dict(zip(figures, ("--chart-1", "--chart-2"), strict=True))
    line = alt.Chart(alt.Data(values=rows)).mark_line(point=_points(len(times)), strokeWidth=1.5)
    # Not by colour alone: the second line is dashed too.
    dashes = alt.StrokeDash(
        "kind:N", sort=list(figures), scale=alt.Scale(domain=list(figures), range=[[1, 0], [4, 3]]), legend=_legend(line=True)
    )
    chart: alt.Chart = line.encode(_time("at", times), _amount("value", unit), _color(colors, line=True), dashes)
    return chart


def _points(number: int) -> alt.OverlayMarkDef | bool:
    """Dots on a short line; a line of one point would be invisible without."""
    return alt.OverlayMarkDef(size=16, filled=True, opacity=1) if number <= 20 else False


def _time(name: str, times: Sequence[str]) -> alt.X:
    spans = datetime.fromisoformat(times[-1]) - datetime.fromisoformat(times[0])
    format = "%b %d" if spans > timedelta(days=3) else "%H:%M" if spans > timedelta(minutes=5) else "%H:%M:%S"
    axis = alt.Axis(title=None, tickCount=3 if format.endswith("S") else 5, labelOverlap=True, labelSeparation=6, format=format)
    return alt.X(f"{name}:T", scale=alt.Scale(type="utc"), axis=axis)


def _amount(name: str, unit: str) -> alt.Y:
    return alt.Y(f"{name}:Q", axis=alt.Axis(title=unit, tickCount=4, format="~s"), scale=alt.Scale(zero=True))


def _color(kinds: Mapping[str, str], *, line: bool = False) -> alt.Color:
    scale = alt.Scale(domain=list(kinds), range=[COLORS[name] for name in kinds.values()])
    return alt.Color("kind:N", scale=scale, legend=_legend(line=line))


def _legend(*, line: bool) -> alt.Legend:
    return alt.Legend(title=None, orient="top", symbolType="stroke" if line else "square")


def _end(bucket: Bucket) -> str:
    return (datetime.fromisoformat(bucket.at) + timedelta(seconds=bucket.seconds)).isoformat()


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f} s"


def _span(seconds: int) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}s" if seconds > size else f"one {unit}"
    return f"{seconds} seconds" if seconds > 1 else "one second"


def _drawn(id: str, title: str, description: str, chart: alt.Chart, heads: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Drawn:
    text, grid = COLORS["--chart-text"], COLORS["--chart-grid"]
    axis = {
        "labelColor": text,
        "titleColor": text,
        "gridColor": grid,
        "domainColor": grid,
        "tickColor": grid,
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11,
    }
    fit = alt.AutoSizeParams(type="fit", contains="padding")
    whole = chart.properties(width=WIDTH, height=HEIGHT, background="transparent", autosize=fit).configure(
        aria=False, font="sans-serif", padding=2, axis=axis, legend={"labelColor": text, "labelFontSize": 11}, view={"stroke": None}
    )
    return Drawn(id, title, description, Markup(_inline(vl_convert.vegalite_to_svg(whole.to_dict()), id, title, description)), heads, rows)


def _inline(svg: str, id: str, title: str, description: str) -> str:
    """The SVG for a page that has several: with ids of its own, a name for screen readers, and the page's colours and font."""
    numbers = itertools.count()
    for name in dict.fromkeys(re.findall(r'\bid="([^"]+)"', svg)):
        own = f"{id}-{next(numbers)}"
        svg = svg.replace(f'id="{name}"', f'id="{own}"').replace(f"url(#{name})", f"url(#{own})")
    for variable, color in COLORS.items():
        svg = svg.replace(color, f"var({variable})")
    svg = svg.replace('font-family="sans-serif"', "")
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None, "Vega writes a viewBox"
    head = f'<svg role="img" aria-labelledby="{id}-title {id}-text" {box.group()} xmlns="http://www.w3.org/2000/svg">'
    names = f'<title id="{id}-title">{escape(title)}</title><desc id="{id}-text">{escape(description)}</desc>'
    return re.sub(r"^<svg[^>]*>", lambda _: head + names, svg, count=1)
