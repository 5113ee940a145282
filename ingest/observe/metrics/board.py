"""Every metric, described once, and a board that holds their values for one source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from ingest import __version__

Source = Literal["run", "lake"]
RUN: Final = ("run",)
LAKE: Final = ("lake",)
BOTH: Final = ("run", "lake")
# A batch takes about a second; it is worth knowing how many take minutes.
BATCH_SECONDS = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
KINDS: Final[dict[str, Any]] = {"counter": Counter, "gauge": Gauge, "histogram": partial(Histogram, buckets=BATCH_SECONDS)}
TABLE: Final = ("pipeline", "table")


@dataclass(frozen=True)
class Metric:
    """One metric (docs/reference/metrics.md lists the same fields)."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    meaning: str
    sources: tuple[Source, ...]
    labels: tuple[str, ...] = TABLE


METRICS: Final = (
    Metric("oncelake_build_info", "gauge", "1", "Version of Oncelake.", BOTH, ("version",)),
    Metric("oncelake_run_up", "gauge", "0 or 1", "Whether a run reads the table.", BOTH),
    Metric("oncelake_records_read_total", "counter", "records", "Records that batches have read.", BOTH),
    Metric("oncelake_records_inserted_total", "counter", "records", "Records that became a row.", BOTH),
    Metric("oncelake_records_duplicate_total", "counter", "records", "Records that were stored already.", BOTH),
    Metric("oncelake_records_quarantined_total", "counter", "records", "Records that batches put into the quarantine.", BOTH),
    Metric("oncelake_batches_total", "counter", "batches", "Committed batches.", BOTH),
    Metric("oncelake_batch_seconds", "histogram", "seconds", "Time of a batch, from its offset range to its last commit.", RUN),
    Metric("oncelake_batch_step_seconds_total", "counter", "seconds", "Time that batches have spent in each step.", RUN, (*TABLE, "step")),
    Metric("oncelake_epochs_reopened_total", "counter", "epochs", "Epochs that the run opened after an error that may pass.", RUN),
    Metric("oncelake_lag_offsets", "gauge", "offsets", "Offsets that are not read yet. Absent if the broker does not answer.", BOTH),
    Metric("oncelake_last_commit_timestamp_seconds", "gauge", "seconds since 1970", "Time of the newest commit of the target.", BOTH),
    Metric("oncelake_epoch", "gauge", "number", "The newest epoch.", BOTH),
    Metric("oncelake_batch", "gauge", "number", "The newest batch of the epoch.", BOTH),
    Metric("oncelake_target_version", "gauge", "version", "Delta version of the target.", BOTH),
    Metric("oncelake_error_info", "gauge", "1", "The error that ended the run, or would refuse a start.", BOTH, (*TABLE, "code")),
    Metric(
        "oncelake_quality_failures",
        "gauge",
        "expectations",
        "Failures of the newest validation run.",
        BOTH,
        (*TABLE, "severity"),
    ),
    Metric("oncelake_quality_timestamp_seconds", "gauge", "seconds since 1970", "Time of the newest validation run.", BOTH),
    Metric("oncelake_quarantine_open_records", "gauge", "records", "Records in the quarantine with the state open.", LAKE),
    Metric("oncelake_quarantine_ratio", "gauge", "0 to 1", "Quarantined share in the 24 hours before the newest commit.", LAKE),
    Metric("oncelake_gap_accepted_offsets", "gauge", "offsets", "Offsets that seeks left out on purpose.", LAKE),
    Metric("oncelake_latency_seconds", "gauge", "seconds", "Time from Kafka to the commit of the newest rows.", LAKE, (*TABLE, "quantile")),
    Metric("oncelake_stored_rows", "gauge", "rows", "Rows of a Delta table.", LAKE, (*TABLE, "kind")),
    Metric("oncelake_stored_files", "gauge", "files", "Files of the newest version of a Delta table.", LAKE, (*TABLE, "kind")),
    Metric("oncelake_stored_bytes", "gauge", "bytes", "Size of these files.", LAKE, (*TABLE, "kind")),
    Metric(
        "oncelake_proof_ok",
        "gauge",
        "0 or 1",
        "Whether the newest proof is chained and found nothing. Absent without a proof that can be read.",
        LAKE,
    ),
    Metric(
        "oncelake_proof_timestamp_seconds",
        "gauge",
        "seconds since 1970",
        "Time of the newest proof. Absent without a proof that can be read.",
        LAKE,
    ),
    Metric("oncelake_audited_version", "gauge", "version", "The audited version of the target. Absent without one.", LAKE),
    Metric(
        "oncelake_held_timestamp_seconds", "gauge", "seconds since 1970", "Since when a failed check holds it back. Absent without.", LAKE
    ),
    Metric("oncelake_measured_timestamp_seconds", "gauge", "seconds since 1970", "When these metrics of the lake were measured.", LAKE),
    Metric("oncelake_transaction_held_offsets", "gauge", "offsets", "Offsets of the topic that open transactions hide.", LAKE),
    Metric("oncelake_transaction_age_seconds", "gauge", "seconds", "Age of the oldest transaction that hides offsets, or 0.", LAKE),
)
# The counters of a batch's counts.
COUNTERS: Final = {
    "records_read": "oncelake_records_read_total",
    "inserted": "oncelake_records_inserted_total",
    "duplicate": "oncelake_records_duplicate_total",
    "quarantined": "oncelake_records_quarantined_total",
}


class Board:
    """The values of the metrics of one source; threads may read and write at once."""

    def __init__(self, source: Source) -> None:
        # Otherwise the client adds a metric `…_created` to each counter, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._metrics: dict[str, Any] = {
            each.name: KINDS[each.kind](each.name, each.meaning, each.labels, registry=self.registry)
            for each in METRICS
            if source in each.sources
        }
        self._codes: dict[str, str] = {}
        self._metrics["oncelake_build_info"].labels(__version__).set(1)

    def at(self, metric: str, table: str, *labels: str) -> Any:
        """The value of a metric for `pipeline.table`: a counter, gauge or histogram of prometheus_client."""
        return self._metrics[metric].labels(*_place(table), *labels)

    def forget(self, metric: str, table: str) -> None:
        """Remove a metric's value for a table: it is unknown."""
        self._metrics[metric].remove(*_place(table))

    def error(self, table: str, code: str | None) -> None:
        """Set or clear the error of a table."""
        if table in self._codes:
            self._metrics["oncelake_error_info"].remove(*_place(table), self._codes.pop(table))
        if code is not None:
            self._codes[table] = code
            self.at("oncelake_error_info", table, code).set(1)

    def quality(self, table: str, failed: int, critical: int, at_s: float) -> None:
        """The newest validation run of a table: its failed expectations, how many of them are critical, and its time."""
        self.at("oncelake_quality_failures", table, "critical").set(critical)
        self.at("oncelake_quality_failures", table, "other").set(failed - critical)
        self.at("oncelake_quality_timestamp_seconds", table).set(at_s)


def _place(table: str) -> tuple[str, str]:
    pipeline, _, name = table.partition(".")
    return pipeline, name
