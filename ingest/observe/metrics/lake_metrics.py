"""The metrics of a lake: of a table's summary, and of the transactions that hold back its topics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ingest.observe.metrics.board import COUNTERS, Board
from ingest.observe.report.summary import Summary

if TYPE_CHECKING:
    from ingest.contract.parts import TopicSource
    from ingest.kafka.open_transactions import Listed
    from ingest.observe.table_status import Status


def measure(board: Board, summary: Summary) -> None:
    """Fill the board. What does not exist (a table, a validation run, a proof) leaves its metrics out."""
    at, table = board.at, summary.table
    _measure_status(board, summary.status)
    total = summary.figures.total
    if total.batches:
        counts = {"records_read": total.read, "duplicate": total.present + total.duplicate}
        for count, counter in COUNTERS.items():
            at(counter, table).inc(counts[count] if count in counts else getattr(total, count))
        at("oncelake_batches_total", table).inc(total.batches)
        recent = [(bucket.quarantined, bucket.records_read) for bucket in summary.figures.buckets]
        quarantined, read = (sum(numbers) for numbers in zip(*recent, strict=True))
        at("oncelake_quarantine_ratio", table).set(quarantined / max(read, 1))
        at("oncelake_gap_accepted_offsets", table).set(summary.figures.gap_accepted)
    if (times := summary.recent) is not None:
        for quantile, seconds in (("0.5", times.latency_median_s), ("0.99", times.latency_p99_s)):
            if seconds is not None:
                at("oncelake_latency_seconds", table, quantile).set(seconds)
    for stored in summary.stored:
        at("oncelake_stored_rows", table, stored.kind).set(stored.rows)
        at("oncelake_stored_files", table, stored.kind).set(stored.files)
        at("oncelake_stored_bytes", table, stored.kind).set(stored.bytes)
        if stored.kind == "quarantine":
            at("oncelake_quarantine_open_records", table).set(summary.quarantined_open)
    if summary.quality:
        newest = summary.quality[0]
        board.quality(table, newest.failed, newest.critical, _seconds(newest.at))
    if summary.proof is not None and summary.proof.sha256:  # without it, this account may not read the proof: it is unknown, not wrong
        at("oncelake_proof_ok", table).set(summary.proof.ok is True and summary.proof.chained)  # a proof that was altered proves nothing
        if summary.proof.made_at:
            at("oncelake_proof_timestamp_seconds", table).set(_seconds(summary.proof.made_at))
    if summary.audit.audited is not None:
        at("oncelake_audited_version", table).set(summary.audit.audited.version)
    if summary.audit.held is not None:
        at("oncelake_held_timestamp_seconds", table).set(_seconds(summary.audit.held.since))


def _measure_status(board: Board, status: Status) -> None:
    at, table = board.at, status.table
    at("oncelake_run_up", table).set(status.running is not None)
    at("oncelake_epoch", table).set(status.epoch)
    if status.last_batch is not None:
        at("oncelake_batch", table).set(int(status.last_batch.partition("/")[2]))
    if status.target_version is not None:
        at("oncelake_target_version", table).set(status.target_version)
    if status.last_commit is not None:
        at("oncelake_last_commit_timestamp_seconds", table).set(_seconds(status.last_commit))
    if status.lag is not None:
        at("oncelake_lag_offsets", table).set(status.lag)
    if status.refusal is not None and status.next == "refuse":
        board.error(table, status.refusal["code"])


def measure_transactions(board: Board, sources: Mapping[str, TopicSource], rows: Sequence[Listed]) -> None:
    """The open transactions that hold back the topics of each table, all together."""
    for table, source in sources.items():
        held = [(row, each) for row in rows for each in row.held if row.is_open and _reads(source, each.topic) and each.holds]
        board.at("oncelake_transaction_held_offsets", table).set(sum(each.held_back for _, each in held))
        board.at("oncelake_transaction_age_seconds", table).set(max((row.age_s or 0 for row, _ in held), default=0))


def _reads(source: TopicSource, topic: str) -> bool:
    return topic in source.names or (source.topic_pattern is not None and re.fullmatch(source.topic_pattern, topic) is not None)


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
