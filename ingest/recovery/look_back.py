"""The look back: whether somebody has restored, replaced or overwritten target or quarantine beneath a run (I1)."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.delta.batch_commit import Snapshot, Snapshots
from ingest.delta.delta_log import DeltaLog
from ingest.delta.reachable import reverts
from ingest.runtime.errors import RunStopped


@dataclass
class LookBack:
    """Target and quarantine as they were last seen; `again` looks from there on."""

    name: str
    target: DeltaLog
    quarantine: DeltaLog
    seen: Snapshots

    def again(self) -> Snapshots:
        """Look at both tables from the last look on. Raises RunStopped TABLE_REWOUND or QUARANTINE_REWOUND."""
        target = self._since(self.target, self.seen.target, "TABLE_REWOUND")
        quarantine = self._since(self.quarantine, self.seen.quarantine, "QUARANTINE_REWOUND")
        self.seen = Snapshots(target, quarantine)
        return self.seen

    def _since(self, log: DeltaLog, seen: Snapshot, code: str) -> Snapshot:
        newest = log.newest()
        if newest == seen.version and log.stamp(newest) == seen.stamp:
            return seen
        found = None
        if log.lacks(seen.version, seen.stamp):
            found = f"its version {seen.version} is gone or another: it was dropped, or a copy was put in its place"
        elif (commit := next((each for each in log.since(seen.version) if reverts(each)), None)) is not None:
            found = f"version {commit.version} is a {commit.operation}"
        if found is not None:
            raise RunStopped(
                code,
                f"{log.table} was changed beneath the run: {found}.",
                expected="nobody else to take committed batches out of the table.",
                remedy=f"`ingest seek {self.name} --to table` reads again what is missing; or bring the table back to its newest state.",
            )
        return Snapshot(seen.table_id, newest, log.stamp(newest))
