"""Compare each batch with its rows in target and quarantine: found = put there - removed (I4). Writes nothing."""

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

# The first broken ids lead to the cause; a list of a thousand helps nobody.
SHOWN_MAX = 20


@dataclass(frozen=True)
class Judged:
    """A batch in one partition: its `rows` found in the target, its `records` found in the quarantine, and how many of each are missing.

    `least` is the number of rows and records that must exist of a batch that seeks have entirely read again or left out; None for others.
    """

    row: LedgerRow
    rows: int
    records: int
    least: int | None
    missing_rows: int
    missing_records: int

    @property
    def missing(self) -> int:
        """How many rows and records are missing."""
        return self.missing_rows + self.missing_records

    def findings(self) -> Iterator[Finding]:
        """The findings for missing and for surplus rows and records."""
        if self.least is not None and self.missing:
            what = f"had {self.least} rows and quarantined records when it was read again or left out, {self.missing} of them are missing"
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
    """The balance of the rows in one table: found = put - removed - retired - replaced - missing + surplus + uncommitted.

    `put` rows are those that batches put there. DELETE commits took the `removed` ones, retention or an erasure the `retired` ones.
    `replaced` rows were gone before a seek read their batches again (rows that came back belong to later batches) or left them out.
    `missing` and `surplus` rows are findings. Only a quarantine has `uncommitted` ones.
    """

    put: int
    removed: int
    replaced: int
    missing: int
    surplus: int
    uncommitted: int
    found: int
    retired: int = 0

    @property
    def less(self) -> dict[str, int]:
        """The rows that are no longer there, by why."""
        found = {"removed": self.removed, "removed by retention or erasure": self.retired}
        return {**found, "replaced by a re-read": self.replaced, "missing": self.missing}

    @property
    def more(self) -> dict[str, int]:
        """The rows beyond those that batches put there, by why."""
        return {"too many": self.surplus, "uncommitted": self.uncommitted}


@dataclass(frozen=True)
class Account:
    """The judged batches, the rows that DELETE commits removed, and all `rows` and `records` of target and quarantine at these versions.

    `unknown` are the findings for rows of no batch. `uncommitted` are quarantined records of batches that are not committed: in progress,
    or cut off.
    """

    judged: tuple[Judged, ...]
    removed: tuple[Removed, ...]
    target: At
    quarantine: At
    rows: Mapping[Key, Group]
    records: Mapping[Key, Group]
    unknown: tuple[Finding, ...]
    uncommitted: Mapping[Key, int]
    retired: Mapping[Key, int]
    erased: Mapping[Key, int]

    def held(self, table: str) -> TableRows:
        """The balance of a table: `target` or `quarantine`."""
        if table == "target":
            groups, uncommitted, counted = self.rows, 0, self.erased
            each = [(batch.row.inserted, batch.rows, batch.missing_rows) for batch in self.judged]
        else:
            groups, uncommitted, counted = self.records, sum(self.uncommitted.values()), self.retired
            each = [(batch.row.quarantined, batch.records, batch.missing_records) for batch in self.judged]
        keys = ((batch.row.epoch, batch.row.batch, batch.row.partition) for batch in self.judged)
        gone = {key: put - now for key, (put, now, _) in zip(keys, each, strict=True)}
        retired = sum(min(number, max(0, gone.get(key, 0))) for key, number in counted.items())
        found = sum(group.rows for group in groups.values())
        put, missing = sum(number for number, _, _ in each), sum(number for _, _, number in each)
        removed = sum(commit.rows for commit in self.removed if commit.table == table)
        replaced = max(0, sum(max(0, number - now) for number, now, _ in each) - missing - removed - retired)
        surplus = found - put + removed + retired + replaced + missing - uncommitted
        return TableRows(put, removed, replaced, missing, surplus, uncommitted, found, retired)

    @property
    def expected_rows(self) -> int:
        """The number of rows that the target should contain: found and missing rows, without surplus rows and rows of no batch."""
        return sum(min(each.rows, each.row.inserted) + each.missing_rows for each in self.judged)


def account(engine: Engine, places: Places, batch_history: BatchHistory) -> Account:
    """Count the target at the batch history's version, then the quarantine, which a batch commits first (I7). Raises Unreadable."""
    target = At(places.target, batch_history.version)
    quarantine = At(places.quarantine, version_of(DeltaLog(files_of(places.lake, engine.session), places.quarantine)))
    rows, records = groups_at(engine, places, target, TARGET), groups_at(engine, places, quarantine, QUARANTINE)
    batches = {(row.epoch, row.batch, row.partition): row for row in (*batch_history.batches, *batch_history.replays)}
    again = {key: seek for key, row in batches.items() if (seek := batch_history.again(row)) is not None}
    least = {key: _least(batches[key], batch_history) for key in again}
    erased = batch_history.erased_since(-1)
    fewer = {key: row.inserted - rows.get(key, NONE).rows - erased[key] for key, row in batches.items()}
    # Records that retention has removed are not missing. Of a batch that was read again, only those removed after the seek counted it.
    retired = batch_history.retired_since(-1)
    after = {version: batch_history.retired_since(version) for version in {seek.snapshots[0] for seek in again.values()}}
    after = {version: removed + batch_history.erased_since(version) for version, removed in after.items()}
    retired_again = {key: after[seek.snapshots[0]][key] for key, seek in again.items()}
    fewer_records = {key: row.quarantined - records.get(key, NONE).rows - retired[key] for key, row in batches.items()}
    # A batch that was read again is judged by both tables together: its records may have become rows. Others are judged per table.
    both = {key: rows.get(key, NONE).rows + records.get(key, NONE).rows for key in again}
    short = _positive(fewer | {key: least[key] - both[key] - retired_again[key] for key in again})
    since = {key: again[key].snapshots[0] if key in again else row.target_version for key, row in batches.items()}
    before = dict(short)
    removed = explain(engine, "target", target, TARGET, short, since)
    short_records = _positive(fewer_records | {key: short.get(key, 0) for key in again})
    since = {key: again[key].snapshots[1] if key in again else 0 for key in batches}
    known = {row.why for row in batch_history.retired}
    removed += explain(engine, "quarantine", quarantine, QUARANTINE, short_records, since, known)
    judged = []
    for key, row in batches.items():
        missing, missing_records = short.get(key, 0), short_records.get(key, 0)
        if key in again:
            missing = min(missing_records, max(0, fewer[key] - before.get(key, 0) + missing))
            missing_records -= missing
        judged.append(Judged(row, rows.get(key, NONE).rows, records.get(key, NONE).rows, least.get(key), missing, missing_records))
    uncommitted = {key: group.rows for key, group in records.items() if key not in batches and _may_be_uncommitted(key, batch_history)}
    unknown = [*_of_no_batch("target", rows, batches, {}), *_of_no_batch("quarantine", records, batches, uncommitted)]
    return Account(tuple(judged), tuple(removed), target, quarantine, rows, records, tuple(unknown), uncommitted, retired, erased)


def _positive(numbers: Mapping[Key, int]) -> dict[Key, int]:
    return {key: number for key, number in numbers.items() if number > 0}


def _least(row: LedgerRow, batch_history: BatchHistory) -> int:
    """The rows and records that must exist of a batch that was read again or left out: as many as the seek counted.

    Without such a count, none if a part of the batch was left out, and all if it was read again.
    """
    if row.stood is not None:
        return row.stood
    return 0 if batch_history.left_out(row).count(row.start_offset, row.end_offset) else row.inserted + row.quarantined


def _may_be_uncommitted(key: Key, batch_history: BatchHistory) -> bool:
    """Whether a batch with quarantined records only may be in progress or cut off: it follows its epoch's last batch, or is the newest."""
    epoch, batch, _ = key
    newest = max(batch_history.last.items(), default=(0, 0))
    return (epoch, batch) > newest or batch == batch_history.last.get(epoch, FIRST_BATCH - 1) + 1


def _of_no_batch(table: str, groups: Mapping[Key, Group], batches: Mapping[Key, LedgerRow], but: Mapping[Key, int]) -> Iterator[Finding]:
    strays = sorted((key, group) for key, group in groups.items() if key not in but and not _inside(group, batches.get(key)))
    if strays:
        each = (f"epoch {e} batch {b} partition {p}: {g.rows}, offsets {g.first} to {g.last}" for (e, b, p), g in strays[:SHOWN_MAX])
        more = "; …" if len(strays) > SHOWN_MAX else ""
        what = f"the {table} contains rows that no batch in ledger or log put there, or at offsets outside of the batch's range"
        yield Finding("ROWS_OF_NO_BATCH", f"{what}: {'; '.join(each)}{more}")


def _inside(group: Group, row: LedgerRow | None) -> bool:
    return row is not None and row.start_offset <= group.first and group.last < row.end_offset
