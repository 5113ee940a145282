"""How far the events of a table have been sent to one destination: a small file in the lake, and what comes after it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import msgspec

from ingest.delta.delta_sql import At, DataFusion, quoted
from ingest.ledger.books import joined
from ingest.ledger.ledger_line import Line
from ingest.ledger.ledger_reader import ledger_lines
from ingest.observe.lineage.lineage_event import ValidationRun
from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places

# Validation runs overlap: one that began earlier may write its results later.
OVERLAP = timedelta(days=1)
NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Sent:
    """The newest batch that was sent, and the validation runs (time and id) of the day before `validated_at`, the newest that was sent."""

    epoch: int = 0
    batch: int = 0
    validated_at: str = NEVER.isoformat()
    validation_runs: tuple[tuple[str, str], ...] = ()

    def with_batch(self, line: Line) -> Sent:
        """After this batch was sent."""
        epoch, batch = max((self.epoch, self.batch), (line.batch_id.epoch, line.batch_id.number))
        return replace(self, epoch=epoch, batch=batch)

    def with_validation(self, run: ValidationRun) -> Sent:
        """After this validation run was sent."""
        at = run.run_at.astimezone(UTC).isoformat()
        after = replace(self, validated_at=max(self.validated_at, at))
        runs = dict.fromkeys((*self.validation_runs, (at, run.run_id)))
        return replace(after, validation_runs=tuple(each for each in runs if datetime.fromisoformat(each[0]) >= after.runs_from))

    @property
    def runs_from(self) -> datetime:
        """The time from which on a validation run may still be unsent."""
        return max(datetime.fromisoformat(self.validated_at) - OVERLAP, NEVER)


@dataclass(frozen=True)
class Cursor:
    """The file that holds `Sent` by destination. Losing it costs nothing: all events are then sent again, with the same run ids."""

    places: Places
    destination: str

    @property
    def path(self) -> str:
        return f"{self.places.lake}/logs/lineage/{self.places.name}.json"

    def read(self) -> Sent:
        try:
            sent = msgspec.convert(self._all().get(self.destination, {}), Sent)
            times = (sent.validated_at, *(at for at, _ in sent.validation_runs))
            return sent if all(datetime.fromisoformat(at).tzinfo for at in times) else Sent()
        except ValueError:
            return Sent()

    def write(self, sent: Sent) -> None:
        document = {**self._all(), self.destination: asdict(sent)}
        LocalFiles().write(self.path, json.dumps(document, indent=1).encode())

    def _all(self) -> dict[str, Any]:
        try:
            found = read_json(LocalFiles().read(self.path) or b"{}")
            return found if isinstance(found, dict) else {}
        except ValueError:
            return {}


def batches_after(places: Places, sent: Sent, since: datetime | None, *, by_epoch: bool) -> Iterator[Sequence[Line]]:
    """The lines of each batch that was not sent yet, in order. `by_epoch`: of each epoch with such a batch, from its first one.

    `since`: those from this commit time on, too, whatever was sent; nothing before it if nothing was sent. A batch is in the ledger a
    minute after its commit at the latest, while a run goes on, or at the next start. Raises Unreadable.
    """
    if not LocalFiles().names(f"{places.ledger}/_delta_log"):
        return
    new = f"(epoch > {sent.epoch} OR (epoch = {sent.epoch} AND batch > {sent.batch}))"
    if since is not None:
        again = f"committed_at >= {_timestamp(since)}"
        # The cursor moves on with what is sent: an unsent batch before it would never be sent.
        new = again if sent == Sent() else f"({new} OR {again})"
    if by_epoch:
        found = DataFusion().ask(f"SELECT DISTINCT epoch FROM {{ledger}} WHERE why = 'batch' AND {new}", ledger=At(places.ledger))
        new = f"epoch IN ({', '.join(str(row['epoch']) for row in found) or -1})"
    lines = joined(ledger_lines(DataFusion(), places, f"why = 'batch' AND {new}"))
    for _, each in groupby(lines, lambda line: (line.batch_id.epoch, 0 if by_epoch else line.batch_id.number)):
        batches = list(each)
        # The commit after the newest batch says how many rows it added. If later batches are there, nobody will say it any more.
        if batches[-1] is lines[-1] and any(line.posting.is_open for line in batches):
            return
        yield batches


def validations_after(places: Places, sent: Sent, since: datetime | None) -> Iterator[ValidationRun]:
    """The validation runs that were not sent yet, in order; `since` as for batches. Raises Unreadable."""
    if not LocalFiles().names(f"{places.quality}/_delta_log"):
        return
    start = sent.runs_from if since is None else since if sent == Sent() else min(since, sent.runs_from)
    known = {id for _, id in sent.validation_runs}
    sql = "SELECT run_id, run_at, version_to, expectation, `column`, severity, success FROM {quality} "
    sql += f"WHERE run_at >= {_timestamp(start)} ORDER BY run_at, run_id, number"
    for (run_id, run_at), each in groupby(DataFusion().ask(sql, quality=At(places.quality)), lambda row: (row["run_id"], row["run_at"])):
        rows = tuple(each)
        if run_id not in known or (since is not None and run_at >= since):
            yield ValidationRun(run_id, run_at, rows[0]["version_to"], rows)


def _timestamp(moment: datetime) -> str:
    return f"CAST({quoted(moment.astimezone(UTC).strftime('%Y-%m-%d %H:%M:%S.%f'))} AS TIMESTAMP)"
