"""The ledger as one driver writes it, in the order of ingest/ledger/projection.py. It may lag behind the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingest.delta.batch_commit import FIRST_BATCH, SEEK, BatchCommit, Snapshot
from ingest.ledger.ledger_reader import LedgerState, cut_since
from tests.model.count import LedgerRow, found, ledger_rows
from tests.model.delta import Version
from tests.model.writer import LEDGER, QUARANTINE, TARGET, Change, Steps, Writer


class Ledger:
    """`pending` are commits that the ledger may lack, of earlier drivers and this one. `behind` counts this driver's batches among them."""

    def __init__(self, writer: Writer, known: LedgerState) -> None:
        self.writer, self.world, self.logs = writer, writer.world, writer.logs
        self.pending = self.world.unledgered(self.logs[TARGET], known)
        self.behind = 0
        self._remember_version()

    def _remember_version(self) -> None:
        version = self.logs[LEDGER].newest()
        self._seen = version, self.logs[LEDGER].stamp(version)

    def append_if_due(self) -> Steps:
        """Append pending rows if enough batches have been committed since the last time."""
        self.behind += 1
        if self.behind >= self.world.setting.ledger_every:
            yield from self.append()

    def append(self) -> Steps:
        """Append pending rows. If another process has done so meanwhile, it wrote the same rows."""
        self.behind = 0
        if not self.pending:
            return
        if cut_since(self.logs[LEDGER], *self._seen):  # type: ignore[arg-type]
            own = {batch_commit.id for _, batch_commit in self.pending}
            self.pending[:0] = [each for each in self.world.unledgered(self.logs[TARGET], LedgerState()) if each[1].id not in own]
        rows: dict[Any, LedgerRow] = {}
        for version, batch_commit in self.pending:
            for key, row in ledger_rows(version, batch_commit):
                rows.setdefault(key, row)
            if batch_commit.kind == "batch" and batch_commit.id.number == FIRST_BATCH and self._unsought(batch_commit.id.epoch):
                for each in batch_commit.ranges:
                    rows["epoch", batch_commit.id.epoch, 0, each.partition, each.start] = LedgerRow(
                        batch_commit.topic.id, each.start, why="start"
                    )
            if batch_commit.kind == "seek" and batch_commit.why == "seek":
                self._existing_rows(batch_commit, rows)
        about = self.pending[-1][1].snapshots.target.table_id

        def change(there: Mapping[Any, Any]) -> Change:
            new = {key: row for key, row in rows.items() if key not in there}
            stood = {key: there[key]._replace(stood=row.stood) for key, row in rows.items() if key in there and row.stood is not None}
            return Change({**there, **stood, **new}, "MERGE", {"about": about})

        yield from self.writer.unfenced(LEDGER, change)
        self._remember_version()
        self.pending = []
        yield

    def _unsought(self, epoch: int) -> bool:
        ledger = self.world.tables[LEDGER]
        sought = {key[1] for key in (ledger.newest.rows if ledger else ()) if key[0] == "epoch" and key[2] == SEEK}
        return epoch not in sought | {batch_commit.id.epoch for _, batch_commit in self.pending if batch_commit.kind == "seek"}

    def _existing_rows(self, seek: BatchCommit, rows: dict[Any, LedgerRow]) -> None:
        """Count the rows of re-read batches that existed at this seek's snapshot. Unknown if that version is gone."""
        ledger = self.world.tables[LEDGER]
        starts = {each.partition: each.start for each in sorted((*seek.ranges, *seek.gaps), reverse=True)}
        then, quarantine = self._at(TARGET, seek.snapshots.target), self._at(QUARANTINE, seek.snapshots.quarantine)
        if then is None or quarantine is None:
            self.world.harmed.add("ledger")
            return
        existing = found(then.rows, quarantine.rows)
        for key, row in [*(ledger.newest.rows.items() if ledger else ()), *rows.items()]:
            kind, e, n, p, _ = key
            if kind == "batch" and e < seek.id.epoch and row.topic == seek.topic.id and row.end > starts.get(p, row.end):
                rows[key] = row._replace(stood=existing[0][e, n, p] + existing[1][e, n, p])

    def _at(self, which: int, look: Snapshot) -> Version | None:
        table = self.world.tables[which]
        if table is None or not table.log_from <= look.version < len(table.versions):
            return None
        version = table.versions[look.version]
        return version if version.stamp == look.stamp else None
