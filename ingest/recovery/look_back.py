"""The look back: has another process restored, replaced or overwritten target or quarantine during a run (I1)?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ingest.delta.batch_commit import Snapshot, Snapshots
from ingest.delta.delta_log import DeltaLog
from ingest.delta.reachable import copied, reverts
from ingest.runtime.errors import RunStopped


@dataclass
class LookBack:
    """The snapshots of target and quarantine that were read last. `again` checks every commit since then.

    `look` is the look of a writer that keeps the tables itself and checks their commits by the same rules; it returns None if there is no
    such writer. Then the logs are read.
    """

    name: str
    target: DeltaLog
    quarantine: DeltaLog
    snapshots: Snapshots
    look: Callable[[str], Snapshot | None] = lambda _: None

    def again(self) -> Snapshots:
        """Check both tables and return their new snapshots. Raises RunStopped TABLE_REWOUND or QUARANTINE_REWOUND, and as `look`."""
        target = self._since(self.target, self.snapshots.target, "TABLE_REWOUND")
        quarantine = self._since(self.quarantine, self.snapshots.quarantine, "QUARANTINE_REWOUND")
        self.snapshots = Snapshots(target, quarantine)
        return self.snapshots

    def moved(self) -> None:
        """Take new snapshots after a statement of this run that replaced the quarantine's content."""
        newest = self.quarantine.newest()
        quarantine = Snapshot(self.snapshots.quarantine.table_id, newest, self.quarantine.stamp(newest))
        self.snapshots = Snapshots(self.snapshots.target, quarantine)

    def _since(self, log: DeltaLog, seen: Snapshot, code: str) -> Snapshot:
        if (looked := self.look(log.table)) is not None:
            return looked
        newest = log.newest()
        if newest == seen.version and log.stamp(newest) == seen.stamp:
            return seen
        now = Snapshot(seen.table_id, newest, log.stamp(newest))
        found = copied(log, now, seen)
        if found is None and (commit := next((each for each in log.since(seen.version) if reverts(each)), None)) is not None:
            found = f"version {commit.version} is a {commit.operation}"
        if found is not None:
            raise RunStopped(
                code,
                f"{log.table} was changed during the run: {found}.",
                expected="a table from which no other process removes committed batches.",
                remedy=f"`ingest seek {self.name} --to table` reads the missing records again. If you can, bring the table back to its "
                "newest state first.",
            )
        return now
