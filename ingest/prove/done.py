"""What checkpoint and table say is done, held against the batches that ledger and log have (I2, I4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ingest.errors import Refused
from ingest.files import files_of
from ingest.places import Places
from ingest.prove.balance import Finding
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_row import LedgerRow
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.mark import app_id
from ingest.stream.offsets import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def done_of(session: SparkSession | None, places: Places) -> tuple[str | None, int] | Finding:
    """The checkpoint's query id and the last batch that Spark counts as done (-1: none); a finding if it cannot be read."""
    checkpoint = CheckpointFiles(files_of(places.checkpoint, session), places.checkpoint)
    try:
        return checkpoint.query_id(), max(checkpoint.numbers("commits"), default=-1)
    except Refused as error:
        return Finding(error.code, error.found)


def not_written(done: tuple[str | None, int] | Finding, rows: Sequence[LedgerRow], summary: LedgerSummary) -> Iterator[Finding]:
    """What Spark counts as done must be in the table; a checkpoint that is not there is nothing to compare with."""
    if isinstance(done, Finding):
        yield done
        return
    query_id, last = done
    if query_id is not None and last > (written := _written(query_id, rows, summary)):
        yield _missing(last, "done in the checkpoint", written)


def not_kept(
    pairs: Mapping[str, int],
    done: tuple[str | None, int] | Finding,
    places: Places,
    rows: Sequence[LedgerRow],
    summary: LedgerSummary,
    log: DeltaLog,
    rebased: int,
) -> Iterator[Finding]:
    """What Delta keeps as done by the newest checkpoint must be in the table: a RESTORE keeps the pairs of what it takes away, also where
    ledger and checkpoint are put back to the same day. Of those before it a rebase has said where they ended; the last one that the
    ledger knows was made when the target was at version `rebased`."""
    newest = max(summary.epochs.values(), default=0)
    prefix = app_id(places.pipeline, places.table, "", "")[:-1]
    for app, number in sorted(pairs.items()):
        query_id = app.removeprefix(prefix).removesuffix("/target")
        if app != app_id(places.pipeline, places.table, query_id, "target"):
            continue
        # One that the ledger does not know is of before that rebase, or of a later one whose rows it has lost.
        unknown = query_id not in summary.epochs and (newest == 0 or _committed(log, app, number) > rebased)
        if not unknown and summary.epochs.get(query_id, -1) < newest:
            continue
        told = isinstance(done, tuple) and done[0] == query_id and done[1] >= number  # the checkpoint says so already
        if not told and number > (written := _written(query_id, rows, summary)):
            yield _missing(number, "done by the pair that Delta keeps", written)


def _committed(log: DeltaLog, app: str, number: int) -> int:
    """The version that has this pair, in force or not; -1 if the log does not tell."""
    return next((commit.version for commit in log.newest_first() if commit.transactions.get(app) == number), -1)


def _written(query_id: str, rows: Sequence[LedgerRow], summary: LedgerSummary) -> int:
    """The last batch of a checkpoint by ledger and log; a rebase's baseline counts as batch 0, -1: none."""
    return max((row.batch_id for row in rows if row.query_id == query_id), default=0 if query_id in summary.begins else -1)


def _missing(number: int, how: str, written: int) -> Finding:
    there = "none" if written < 0 else str(written)
    return Finding("BATCH_MISSING", f"is {how}, but the last one that the table holds is {there}", number)
