"""The charts of a run, drawn with Altair: the harm done by each fault, and the throughput and latency of each mode."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import altair as alt

from ingest.lab.delivery_modes import candidate
from ingest.lab.delivery_modes.candidate import named
from ingest.lab.delivery_modes.mode_result import ModeResult, Speed, Trial

Chart: TypeAlias = alt.FacetChart | alt.LayerChart

# The Okabe-Ito palette: distinguishable for colour-blind readers and in greyscale print.
COLORS: Final = {"at_most_once": "#999999", "at_least_once": "#e69f00", "idempotent": "#56b4e9", "exactly_once": "#0072b2"}
HARMS: Final = {"lost": "#d55e00", "doubled": "#e69f00", "reordered": "#56b4e9"}
NO_GROUPS: Final = "no groups"
TRANSACTIONS: Final = "records per group (exactly once: per transaction)"
_WIDTH: Final = 580


def charts(result: ModeResult) -> list[Chart]:
    """All charts for which this run has data."""
    found: list[Chart] = [harm_chart(result.trials)] if result.trials else []
    if any(speed.group is not None for speed in result.speeds):
        # In each title, because a chart may be shown without the surrounding text.
        quick = " (quick run, no measurement)" if result.quick else ""
        found += [
            speed_chart(f"{title}{quick}", result.speeds, value)
            for title, value in (
                ("Throughput, records per second", lambda speed: speed.records_per_s),
                ("Throughput, as a share of at most once with the same groups", lambda speed: speed.of_same),
                ("Latency, median from due to read, ms", lambda speed: speed.latency.p50_ms),
                ("Latency, 99th percentile from due to read, ms", lambda speed: speed.latency.p99_ms),
            )
        ]
    return found


def picture(result: ModeResult) -> alt.VConcatChart:
    """All charts in one picture."""
    whole: alt.VConcatChart = alt.vconcat(*charts(result)).resolve_scale(color="independent")
    return whole


def svg(chart: Chart) -> str:
    """The chart as SVG for a page, with escaped texts."""
    text = io.StringIO()
    chart.save(text, format="svg")
    return text.getvalue()


def harm_chart(trials: Sequence[Trial]) -> Chart:
    """One bar per candidate and fault: how many of the offered records were lost, doubled and reordered."""
    rows = []
    for trial in trials:
        counts = {harm: getattr(trial.verdict, harm) for harm in HARMS}
        said = ", ".join(f"{count:,} {harm}" for harm, count in counts.items() if count) or "none"
        words = {"fault": named(trial.fault), "mode": named(trial.mode), "said": said, "all": sum(counts.values())}
        rows += [{**words, "harm": harm, "records": count} for harm, count in counts.items()]
    y = alt.Y("mode:N", title=None, sort=[named(mode) for mode in candidate.NAMES])
    color = alt.Color("harm:N", title=None, scale=alt.Scale(domain=list(HARMS), range=list(HARMS.values())))
    bars = alt.Chart(width=_WIDTH).mark_bar().encode(alt.X("records:Q", title=None), y, color)
    words = alt.Chart().mark_text(align="left", dx=6).encode(alt.X("all:Q"), y, alt.Text("said:N")).transform_filter("datum.harm == 'lost'")
    faults = alt.Row("fault:N", title=None, sort=list(dict.fromkeys(named(trial.fault) for trial in trials)))
    return alt.layer(bars, words, data=alt.Data(values=rows)).facet(row=faults, title="Harm by fault, records")


def speed_chart(title: str, speeds: Sequence[Speed], value: Callable[[Speed], float]) -> Chart:
    """`value` on a logarithmic scale by records per group; without groups is at the right end."""
    rows = [
        {"group": NO_GROUPS if speed.group is None else f"{speed.group:,}", "mode": named(speed.mode), "value": max(value(speed), 1e-3)}
        for speed in speeds
    ]
    groups = [f"{group:,}" for group in sorted({speed.group for speed in speeds if speed.group is not None})]
    x = alt.X("group:O", sort=[*groups, NO_GROUPS], axis=alt.Axis(labelAngle=0, title=TRANSACTIONS))
    y = alt.Y("value:Q", title=None, scale=alt.Scale(type="log"))
    modes = alt.Scale(domain=[named(mode) for mode in COLORS], range=list(COLORS.values()))
    base = alt.Chart(alt.Data(values=rows), title=title, width=_WIDTH).encode(x, y, alt.Color("mode:N", title=None, scale=modes))
    lines = base.mark_line().transform_filter(f"datum.group != '{NO_GROUPS}'")
    return alt.layer(lines, base.mark_square(size=64, opacity=1))
