"""The count of `ingest verify`, simplified: rows found per (epoch, batch, partition) against the rows that the batches inserted (I4).

A batch is checked against its own counts until a seek re-reads it. Once that seek's epoch or later ones have re-read all offsets that the
seek covers, the batch is checked against its rows that existed at the seek's snapshot. An offset is complete if no batch that read it
misses a row. A later batch that re-read it inserted only the rows that were missing then, and proves nothing about the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ingest.delta.batch_commit import FIRST_BATCH, BatchCommit
from ingest.kafka.intervals import Intervals
from ingest.verify.coverage import Coverage
from tests.model.delta import Key, Rows, Table, Version


class LedgerRow(NamedTuple):
    """A row of the ledger, without its key (kind, epoch, batch, partition, start)."""

    topic: str
    end: int
    read: int = 0
    inserted: int = 0
    quarantined: int = 0
    stood: int | None = None
    why: str = ""
    version: int = 0


class Batch(NamedTuple):
    """One partition of a batch."""

    topic: str
    start: int
    end: int
    inserted: int
    quarantined: int
    stood: int | None


class Seek(NamedTuple):
    """A seek: the lowest offset per partition that it re-reads or skips, its accepted gaps, and the target version of its snapshot."""

    topic: str
    starts: dict[int, int]
    gaps: list[tuple[int, int, int]]
    version: int


Found = tuple[Counter[Key], Counter[Key]]


def found(target: Rows, quarantine: Rows) -> Found:
    """Counts of the target's rows and of the quarantine's records."""
    return Counter((e, b, p) for _, p, _, e, b in target.values()), Counter((e, b, at[1]) for at, (e, b, _) in quarantine.items())


def ledger_rows(version: Version, batch_commit: BatchCommit) -> Iterator[tuple[tuple[str, int, int, int, int], LedgerRow]]:
    """The ledger rows of a commit of the target."""
    e, n, topic = batch_commit.id.epoch, batch_commit.id.number, batch_commit.topic.id
    if batch_commit.kind == "seek":
        for each in batch_commit.ranges:
            yield ("epoch", e, n, each.partition, each.start), LedgerRow(topic, each.end, why=batch_commit.why, version=version.version)
        for each in batch_commit.gaps:
            yield ("gap_accepted", e, n, each.partition, each.start), LedgerRow(topic, each.end, version=version.version)
        return
    counts = dict(batch_commit.counts)
    for each in batch_commit.ranges:
        inserted, p = version.inserted.get(each.partition, 0), each.partition
        read, quarantined = (counts[p].read, counts[p].quarantined) if p in counts else (0, 0)
        yield ("batch", e, n, p, each.start), LedgerRow(topic, each.end, read, inserted, quarantined, version=version.version)


def batch_commits(table: Table | None) -> Iterator[tuple[Version, BatchCommit]]:
    """Batches and seeks in a table's log, oldest first, even if a RESTORE reverted them."""
    if table is not None:
        for version in table.versions[table.log_from :]:
            if version.batch_commit is not None and version.batch_commit.kind in ("batch", "seek"):
                yield version, version.batch_commit


class Known:
    """Batches, seeks and gaps from the ledger and the target's log, compared with the current rows of target and quarantine."""

    def __init__(self, tables: list[Table | None], *, roll_backs_count: bool = False) -> None:
        self.target, self.quarantine, ledger = tables
        rows = dict(ledger.newest.rows) if ledger is not None else {}
        snapshots: dict[int, int] = {}
        for version, batch_commit in batch_commits(self.target):
            snapshots[batch_commit.id.epoch] = (
                batch_commit.snapshots.target.version if batch_commit.kind == "seek" else snapshots.get(batch_commit.id.epoch, -1)
            )
            for key, row in ledger_rows(version, batch_commit):
                rows.setdefault(key, row)
        self.batches: dict[Key, Batch] = {}
        self.seeks: dict[int, Seek] = {}
        for (kind, e, n, p, start), row in sorted(rows.items()):
            if kind == "batch":
                self.batches[e, n, p] = Batch(row.topic, start, row.end, row.inserted, row.quarantined, row.stood)
            elif kind == "gap_accepted" or n > 0:
                seek = self.seeks.setdefault(e, Seek(row.topic, {}, [], snapshots.get(e, row.version)))
                if kind == "gap_accepted":
                    seek.gaps.append((p, start, row.end))
                seek.starts[p] = min(start, seek.starts.get(p, start))
        self.found = found(self.target.newest.rows if self.target else {}, self.quarantine.newest.rows if self.quarantine else {})
        self._removed = _removed(self.target, ("DELETE",))
        self._rolled_back = _removed(self.quarantine, ("ROLLBACK",)) if roll_backs_count else []

    def shortage(self, key: Key) -> int:
        """The number of rows and records that are missing of this batch."""
        batch, there = self.batches[key], self.found[0][key] + self.found[1][key]
        seek = self._read_again_by(key, batch)
        if seek is None:
            return batch.inserted + batch.quarantined - there - self._gone(key, -1)
        stood = batch.stood
        if stood is None:  # no seek counted its existing rows
            stood = (
                0
                if self._gaps(batch.topic, key[2], key[0] + 1) & set(range(batch.start, batch.end))
                else batch.inserted + batch.quarantined
            )
        return stood - there - self._gone(key, self.seeks[seek].version)

    def short(self, key: Key) -> bool:
        """Whether anything is missing. Rows and records are checked separately if the batch is checked against its own counts."""
        batch = self.batches[key]
        if self.shortage(key) > 0:
            return True
        if self._read_again_by(key, batch) is not None:
            return False
        return self.found[0][key] + self._gone(key, -1) < batch.inserted or self.found[1][key] + self._rolled(key) < batch.quarantined

    def _gone(self, key: Key, since: int) -> int:
        taken = sum(removed.get(key, 0) for version, removed in self._removed if version > since)
        return taken + self._rolled(key)

    def _rolled(self, key: Key) -> int:
        return sum(removed.get(key, 0) for _, removed in self._rolled_back)

    def _read_again_by(self, key: Key, batch: Batch) -> int | None:
        """The newest seek that re-reads a part of this batch, if its epoch and later ones have read all that it covers."""
        epoch, _, p = key
        later = [e for e, s in self.seeks.items() if e > epoch and s.topic == batch.topic and s.starts.get(p, batch.end) < batch.end]
        if not later:
            return None
        by = max(later)
        left = set(range(max(batch.start, self.seeks[by].starts[p]), batch.end))
        for (e, _, q), each in self.batches.items():
            if e >= by and q == p and each.topic == batch.topic:
                left -= set(range(each.start, each.end))
        return by if not left - self._gaps(batch.topic, p, by) else None

    def _gaps(self, topic: str, p: int, least: int) -> set[int]:
        """Offsets in gaps that seeks of epoch `least` or later have accepted."""
        gaps = (g for e, s in self.seeks.items() if e >= least and s.topic == topic for g in s.gaps if g[0] == p)
        return {offset for _, start, end in gaps for offset in range(start, end)}

    def uncommitted(self) -> set[tuple[int, int]]:
        """Epoch and batch of quarantined records without a target commit: the next batch of an epoch, or newer than all batches."""
        last: dict[int, int] = {}
        for epoch, number, _ in self.batches:
            last[epoch] = max(number, last.get(epoch, 0))
        newest = max(last.items(), default=(0, 0))
        known = {key[:2] for key in self.batches}
        there = {key[:2] for key in self.found[1]} - known
        return {id for id in there if id > newest or id[1] == last.get(id[0], FIRST_BATCH - 1) + 1}

    def unknown(self) -> list[Key]:
        """Rows and records of batches that neither ledger nor log has."""
        uncommitted = self.uncommitted()
        return [k for k in (self.found[0] | self.found[1]) if k not in self.batches and (k[:2] not in uncommitted or self.found[0][k])]

    def missing(self) -> list[Key]:
        return [key for key in self.batches if self.short(key)]

    def coverage(self, topic: str) -> Coverage:
        """The coverage of one topic."""
        own = {key: batch for key, batch in self.batches.items() if batch.topic == topic}
        short = {key for key in own if self.short(key)}
        begins: dict[int, int] = {}
        ends: dict[int, int] = {}
        places = [(p, b.start) for (_, _, p), b in own.items()]
        for p, start in [*places, *(each for s in self.seeks.values() if s.topic == topic for each in s.starts.items())]:
            begins[p] = min(start, begins.get(p, start))
        epochs = {key[0] for key in own} | {e for e, s in self.seeks.items() if s.topic == topic}
        if epochs and min(epochs) not in self.seeks:  # the first known epoch continues an unknown one
            begins = dict.fromkeys(begins, 0)
        for (_, _, p), batch in own.items():
            ends[p] = max(batch.end, ends.get(p, 0))
        whole = {p: self._whole(topic, p, [(k, b) for k, b in own.items() if k[2] == p], short) for p in begins}
        return Coverage(begins, {p: _intervals(offsets) for p, offsets in whole.items()}, ends, not self.unknown())

    def _whole(self, topic: str, p: int, batches: list[tuple[Key, Batch]], short: set[Key]) -> set[int]:
        whole = {offset for _, batch in batches for offset in range(batch.start, batch.end)} | self._gaps(topic, p, 0)
        for key, batch in batches:
            if key in short:  # a gap excuses losses of batches from before it was accepted
                whole -= set(range(batch.start, batch.end)) - self._gaps(topic, p, key[0] + 1)
        return whole

    def findings(self, topic: str, bounds: Mapping[int, int]) -> list[str]:
        """The findings of verify when all drivers have ended; `bounds` are the end offsets of the topic."""
        said = [f"{key} lacks {self.shortage(key)}" for key in self.missing()]
        rows, records = self.found
        said += [f"{k} has too many" for k, b in self.batches.items() if rows[k] > b.inserted or records[k] > b.quarantined]
        said += [f"{key} belongs to no known batch" for key in self.unknown()]
        covered = self.coverage(topic)
        for p, end in bounds.items():
            if p in covered.begins and covered.first_missing(p) < end:
                said.append(f"partition {p} is not complete at {covered.first_missing(p)}")
        return said


def _removed(table: Table | None, operations: tuple[str, ...]) -> list[tuple[int, Mapping[Key, int]]]:
    """Rows that these commits removed, by version. It walks back from the newest, because a RESTORE undoes the commits that it skips."""
    removed: list[tuple[int, Mapping[Key, int]]] = []
    version = len(table.versions) - 1 if table is not None else -1
    while table is not None and version >= table.log_from:
        commit = table.versions[version]
        if commit.operation in operations:
            removed.append((version, commit.removed))
        elif commit.operation.startswith("REPLACE") or commit.parameters:
            break
        version = version - 1 if commit.back is None else commit.back
    return removed


def _intervals(offsets: Iterable[int]) -> Intervals:
    return Intervals.of((offset, offset + 1) for offset in offsets)
