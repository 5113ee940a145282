"""How far the events of a table have been sent to one destination: a small file in the lake, and what comes after it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from ingest.delta.delta_sql import At, DataFusion, quoted
from ingest.ledger.ledger_reader import ledger_rows
from ingest.ledger.ledger_row import LedgerRow
from ingest.lineage.lineage_event import ValidationRun
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places

# Validation runs overlap: one that began earlier may write its results later.
OVERLAP = timedelta(days=1)
NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Sent:
    """The newest batch that was sent, and the validation runs of the day before `validated_at`, the newest one that was sent."""

    epoch: int = 0
    batch: int = 0
    validated_at: str = NEVER.isoformat()
    validation_runs: tuple[str, ...] = ()

    def with_batch(self, row: LedgerRow) -> Sent:
        """After this batch was sent."""
        epoch, batch = max((self.epoch, self.batch), (row.epoch, row.batch))
        return replace(self, epoch=epoch, batch=batch)

    def with_validation(self, run: ValidationRun) -> Sent:
        """After this validation run was sent."""
        newest = max(self.validated_at, run.run_at.astimezone(UTC).isoformat())
        return replace(self, validated_at=newest, validation_runs=tuple(dict.fromkeys((*self.validation_runs, run.run_id)))[-100:])


@dataclass(frozen=True)
class Cursor:
    """The file that holds `Sent` by destination. Losing it costs nothing: all events are then sent again, with the same run ids."""

    places: Places
    destination: str

    @property
    def path(self) -> str:
        return f"{self.places.lake}/logs/lineage/{self.places.name}.json"

    def read(self) -> Sent:
        found = self._all().get(self.destination, {})
        try:
            return Sent(**{**found, "validation_runs": tuple(found.get("validation_runs", ()))})
        except TypeError:
            return Sent()

    def write(self, sent: Sent) -> None:
        document = {**self._all(), self.destination: asdict(sent)}
        LocalFiles().write(self.path, json.dumps(document, indent=1).encode())

    def _all(self) -> dict[str, Any]:
        try:
            found = json.loads(LocalFiles().read(self.path) or b"{}")
            return found if isinstance(found, dict) else {}
        except ValueError:
            return {}


def batches_after(places: Places, sent: Sent, since: datetime | None, *, by_epoch: bool) -> Iterator[Sequence[LedgerRow]]:
    """The ledger rows of each batch that was not sent yet, in order. `by_epoch`: of each epoch with such a batch, from its first one.

    `since`: from this commit time on, whatever was sent. A batch is in the ledger a minute after its commit at the latest, while a run
    goes on, or at the next start. Raises Unreadable.
    """
    if not LocalFiles().names(f"{places.ledger}/_delta_log"):
        return
    new = f"(epoch > {sent.epoch} OR (epoch = {sent.epoch} AND batch > {sent.batch}))"
    if since is not None:
        new = f"committed_at >= {_timestamp(since)}"
    if by_epoch:
        found = DataFusion().ask(f"SELECT DISTINCT epoch FROM {{ledger}} WHERE kind = 'batch' AND {new}", ledger=At(places.ledger))
        new = f"epoch IN ({', '.join(str(row['epoch']) for row in found) or -1})"
    rows = ledger_rows(DataFusion(), places, f"kind = 'batch' AND {new}")
    for _, each in groupby(rows, lambda row: (row.epoch, 0 if by_epoch else row.batch)):
        yield list(each)


def validations_after(places: Places, sent: Sent, since: datetime | None) -> Iterator[ValidationRun]:
    """The validation runs that were not sent yet, in order. Raises Unreadable."""
    if not LocalFiles().names(f"{places.quality}/_delta_log"):
        return
    start = since or max(datetime.fromisoformat(sent.validated_at) - OVERLAP, NEVER)
    sql = "SELECT run_id, run_at, version_to, expectation, `column`, severity, success FROM {quality} "
    sql += f"WHERE run_at >= {_timestamp(start)} ORDER BY run_at, run_id, number"
    for (run_id, run_at), each in groupby(DataFusion().ask(sql, quality=At(places.quality)), lambda row: (row["run_id"], row["run_at"])):
        rows = tuple(each)
        if since is not None or run_id not in sent.validation_runs:
            yield ValidationRun(run_id, run_at, rows[0]["version_to"], rows)


def _timestamp(moment: datetime) -> str:
    return f"CAST({quoted(moment.astimezone(UTC).strftime('%Y-%m-%d %H:%M:%S.%f'))} AS TIMESTAMP)"
