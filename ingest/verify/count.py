"""Each batch held against what target and quarantine hold of it: found = put there - removed (I4). It reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ingest.delta.batch_commit import FIRST_BATCH
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine
from ingest.delta.stored_rows import NONE, QUARANTINE, TARGET, Group, Key, groups_at
from ingest.ledger.batch_history import BatchHistory, version_of
from ingest.ledger.ledger_row import LedgerRow
from ingest.runtime.files import files_of
from ingest.runtime.places import Places
from ingest.verify.balance import Finding, finding
from ingest.verify.deletions import Removed, explain

# A list of a thousand broken ids helps nobody; the first ones lead to the cause.
SHOWN_MAX = 20


@dataclass(frozen=True)
class Judged:
    """A batch in one partition, the `rows` and `records` found of it in target and quarantine, and how many of each are missing.

    `least`: where seeks have read the batch again or left it out entirely, how many of its rows and records have to stand; else None.
    """

    row: LedgerRow
    rows: int
    records: int
    least: int | None
    missing_rows: int
    missing_records: int

    @property
    def missing(self) -> int:
        """How many of both are missing."""
        return self.missing_rows + self.missing_records

    def findings(self) -> Iterator[Finding]:
        """What is missing, and what is too much."""
        if self.least is not None and self.missing:
            what = f"of {self.least} rows and quarantined records that stood when it was read again or left out, {self.missing} are missing"
            yield finding("ROWS_DIFFER" if self.missing_rows else "QUARANTINE_DIFFERS", self.row, what)
        if self.rows > self.row.inserted or (self.least is None and self.missing_rows):
            yield finding("ROWS_DIFFER", self.row, f"put {self.row.inserted} rows into the target{self._now(self.rows, self.missing_rows)}")
        if self.records > self.row.quarantined or (self.least is None and self.missing_records):
            what = f"put {self.row.quarantined} records into quarantine{self._now(self.records, self.missing_records)}"
            yield finding("QUARANTINE_DIFFERS", self.row, what)

    def _now(self, found: int, missing: int) -> str:
        return f", {found} are there" + (f" and {missing} are missing without a DELETE" if missing else "")


@dataclass(frozen=True)
class TableRows:
    """What became of what batches put into a table: found = put - removed - replaced - missing + surplus + uncommitted.

    `removed` were taken by DELETE commits. `replaced` were gone before a seek read their batches again (what came back then is of later
    batches) or left them out. `missing` and `surplus` are findings; `uncommitted` only a quarantine has.
    """

    put: int
    removed: int
    replaced: int
    missing: int
    surplus: int
    uncommitted: int
    found: int


@dataclass(frozen=True)
class Account:
    """The judged batches, what DELETE commits took, all rows of target and quarantine at these versions, and those that are of no batch.

    `uncommitted` are quarantined records of batches that were not committed: one at hand, or cut off.
    """

    judged: tuple[Judged, ...]
    removed: tuple[Removed, ...]
    target: At
    quarantine: At
    rows: Mapping[Key, Group]
    records: Mapping[Key, Group]
    unknown: tuple[Finding, ...]
    uncommitted: Mapping[Key, int]

    def held(self, table: str) -> TableRows:
        """The sum of `target` or `quarantine`."""
        if table == "target":
            there, uncommitted = self.rows, 0
            each = [(batch.row.inserted, batch.rows, batch.missing_rows) for batch in self.judged]
        else:
            there, uncommitted = self.records, sum(self.uncommitted.values())
            each = [(batch.row.quarantined, batch.records, batch.missing_records) for batch in self.judged]
        found = sum(group.rows for group in there.values())
        put, missing = sum(number for number, _, _ in each), sum(number for _, _, number in each)
        removed = sum(commit.rows for commit in self.removed if commit.table == table)
        replaced = max(0, sum(max(0, number - now) for number, now, _ in each) - missing - removed)
        return TableRows(put, removed, replaced, missing, found - put + removed + replaced + missing - uncommitted, uncommitted, found)

    @property
    def expected_rows(self) -> int:
        """How many rows the target should hold: those found and those missing, without those that are too many or of no batch."""
        return sum(min(each.rows, each.row.inserted) + each.missing_rows for each in self.judged)


def account(engine: Engine, places: Places, batch_history: BatchHistory) -> Account:
    """Count the target at the version of the books, and then the quarantine, which is committed first (I7). Raises Unreadable."""
    target = At(places.target, batch_history.version)
    quarantine = At(places.quarantine, version_of(DeltaLog(files_of(places.lake, engine.session), places.quarantine)))
    rows, records = groups_at(engine, places, target, TARGET), groups_at(engine, places, quarantine, QUARANTINE)
    batches = {(row.epoch, row.batch, row.partition): row for row in batch_history.batches}
    again = {key: seek for key, row in batches.items() if (seek := batch_history.again(row)) is not None}
    least = {key: _least(batches[key], batch_history) for key in again}
    fewer = {key: row.inserted - rows.get(key, NONE).rows for key, row in batches.items()}
    fewer_records = {key: row.quarantined - records.get(key, NONE).rows for key, row in batches.items()}
    # Of a batch that was read again both tables together have to hold what stood; of all others each by itself.
    short = _positive(fewer | {key: least[key] - rows.get(key, NONE).rows - records.get(key, NONE).rows for key in again})
    since = {key: again[key].snapshots[0] if key in again else row.target_version for key, row in batches.items()}
    before = dict(short)
    removed = explain(engine, "target", target, TARGET, short, since)
    short_records = _positive(fewer_records | {key: short.get(key, 0) for key in again})
    since = {key: again[key].snapshots[1] if key in again else 0 for key in batches}
    removed += explain(engine, "quarantine", quarantine, QUARANTINE, short_records, since)
    judged = []
    for key, row in batches.items():
        missing, missing_records = short.get(key, 0), short_records.get(key, 0)
        if key in again:
            missing = min(missing_records, max(0, fewer[key] - before.get(key, 0) + missing))
            missing_records -= missing
        judged.append(Judged(row, rows.get(key, NONE).rows, records.get(key, NONE).rows, least.get(key), missing, missing_records))
    uncommitted = {key: group.rows for key, group in records.items() if key not in batches and _may_be_uncommitted(key, batch_history)}
    unknown = [*_of_no_batch("target", rows, batches, {}), *_of_no_batch("quarantine", records, batches, uncommitted)]
    return Account(tuple(judged), tuple(removed), target, quarantine, rows, records, tuple(unknown), uncommitted)


def _positive(numbers: Mapping[Key, int]) -> dict[Key, int]:
    return {key: number for key, number in numbers.items() if number > 0}


def _least(row: LedgerRow, batch_history: BatchHistory) -> int:
    """What has to stand of a batch that was read again or left out: what stood then. If nobody counted that, nothing of what was left out
    for good, and all of what was read again."""
    if row.stood is not None:
        return row.stood
    return 0 if batch_history.left_out(row).count(row.start_offset, row.end_offset) else row.inserted + row.quarantined


def _may_be_uncommitted(key: Key, batch_history: BatchHistory) -> bool:
    """Whether a batch with records in quarantine alone is one at hand or cut off: it follows its epoch's last one, or is newer than all."""
    epoch, batch, _ = key
    newest = max(batch_history.last.items(), default=(0, 0))
    return (epoch, batch) > newest or batch == batch_history.last.get(epoch, FIRST_BATCH - 1) + 1


def _of_no_batch(table: str, groups: Mapping[Key, Group], batches: Mapping[Key, LedgerRow], but: Mapping[Key, int]) -> Iterator[Finding]:
    strays = sorted((key, group) for key, group in groups.items() if key not in but and not _inside(group, batches.get(key)))
    if strays:
        each = (f"epoch {e} batch {b} partition {p}: {g.rows}, offsets {g.first} to {g.last}" for (e, b, p), g in strays[:SHOWN_MAX])
        more = "; …" if len(strays) > SHOWN_MAX else ""
        what = f"the {table} holds rows that no batch of ledger or log has put there, or at offsets outside of its own"
        yield Finding("ROWS_OF_NO_BATCH", f"{what}: {'; '.join(each)}{more}")


def _inside(group: Group, row: LedgerRow | None) -> bool:
    return row is not None and row.start_offset <= group.first and group.last < row.end_offset
