"""Each ledger row held against what stands in its range: its rows, its records in quarantine, what it found there (I4, I5).

A row says how many records of its range stood in target and quarantine when it was committed: those that it inserted, those that it put
into quarantine, those that it passed over because they stood there already (replayed). So many positions have to stand there still, but
for what a DELETE took since. Positions are counted, not added up over batches: what two checkpoints have read stands there once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ingest.delta_sql import At, Engine, Unreadable, quoted
from ingest.prove.balance import Finding, finding
from ingest.prove.count import Counted, Rows, count, positions
from ingest.prove.intervals import Intervals
from ingest.prove.piece import Piece
from ingest.prove.taken import Taken, taken_since, took
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_row import LedgerRow


@dataclass(frozen=True)
class Tables:
    """What is counted: the target at a version, the `records` of its batches in quarantine, and `all_records` of the quarantine, with
    those of a batch at hand or cut off."""

    target: Rows
    records: Rows
    all_records: Rows


@dataclass(frozen=True)
class Held:
    """What stands in a ledger row's range: rows of the target, records in quarantine, and distinct positions in either, with what a batch
    at hand has put into quarantine (`least`, for what must not be missing) and without (`most`)."""

    rows: int
    records: int
    least: int
    most: int


class Standing:
    """The pieces of the ledger's ranges, and what is counted in each."""

    def __init__(self, engine: Engine, tables: Tables, pieces: Sequence[Piece], target: Counted, records: Counted) -> None:
        self._engine, self._tables, self._target, self._records = engine, tables, target.by_piece, records.by_piece
        self._pieces: dict[LedgerRow, list[int]] = {}
        for index, piece in enumerate(pieces):
            for row in piece.rows:
                self._pieces.setdefault(row, []).append(index)
        self._cut = pieces
        self._least: Mapping[int, int] = {}
        self._most: Mapping[int, int] = {}
        self._then: dict[LedgerRow, tuple[Intervals, Intervals] | None] = {}
        self._own: dict[tuple[str, int, int], int] = {}
        if not all(self._plain(row) for row in self._pieces):
            columns = "query_id, batch_id, `partition`"
            by_batch = engine.ask(f"SELECT {columns}, count(*) AS n FROM {{rows}} GROUP BY {columns}", rows=tables.all_records.table)
            self._own = {(row["query_id"], row["batch_id"], row["partition"]): row["n"] for row in by_batch}
            # One that stands in both stands for no other.
            self._least, self._most = (
                count(engine, replace(each, but_not=(tables.target,)), pieces).by_piece for each in (tables.all_records, tables.records)
            )

    def findings(self, log: DeltaLog) -> tuple[list[Finding], int]:
        """What is missing or too much, and how many rows a DELETE took, as far as it was looked for. Raises Unreadable."""
        found = [each for row in self._pieces for each in self._too_much(row)]
        short: Collection[LedgerRow] = self._short(Taken())
        if took(self._engine, self._tables.target, self._tables.all_records, log, self._pieces):
            short = self._pieces  # there may be more, where others stand in their place
        if not short:
            return found, 0
        gone = taken_since(self._engine, self._tables.target, self._tables.all_records, log, short)
        removed = sum(gone.of_piece(self._cut[index]) for index in {index for row in short for index in self._pieces[row]}) + gone.untold
        lacking = self._short(gone)
        if not self._told_by_figures(lacking, gone):
            found += [self._missing(row, number, gone) for row, number in lacking.items()]
        return found, removed

    def _plain(self, row: LedgerRow) -> bool:
        """Whether no other batch has read its range, and it has found nothing there: then rows are its rows, and records its records."""
        return not row.replayed and all(len(self._cut[index].rows) == 1 for index in self._pieces[row])

    def _held(self, row: LedgerRow) -> Held:
        at = self._pieces[row]
        target, records, least, most = (
            sum(counted.get(index, 0) for index in at) for counted in (self._target, self._records, self._least, self._most)
        )
        return Held(target, records, target + least, target + most)

    def _later(self, row: LedgerRow, index: int) -> list[LedgerRow]:
        return [each for each in self._cut[index].rows if each.target_version > row.target_version]

    def _too_much(self, row: LedgerRow) -> Iterator[Finding]:
        held = self._held(row)
        if self._plain(row):
            if held.rows > row.inserted:
                yield finding("ROWS_DIFFER", row, f"the ledger says {row.inserted} rows were inserted, the target holds {held.rows}")
            if held.records != row.quarantined:
                what = f"the ledger says {row.quarantined} records went to quarantine, it holds {held.records}"
                yield finding("QUARANTINE_DIFFERS", row, what)
            return
        # What Kafka held no longer when it was read again (a gap of this batch) may stand there all the same.
        if held.most > stood(row) + row.gap and not any(self._later(row, index) for index in self._pieces[row]):
            what = f"{stood(row)} records were put or found in target and quarantine, {held.most} stand there"
            yield finding("ROWS_DIFFER", row, what)

    def _short(self, gone: Taken) -> dict[LedgerRow, int]:
        """Rows of the ledger of which some stand no more, with their number.

        Of one whose whole range was read again by later checkpoints these speak: what was missing then has come back, or is a duplicate.
        Only if one of them lacks something too, it helps to know since which batch.
        """
        short = {row: lost for row in self._pieces if (lost := self._lost(row, gone)) > 0}
        return {row: lost for row, lost in short.items() if not (later := self._read_again(row)) or any(each in short for each in later)}

    def _lost(self, row: LedgerRow, gone: Taken) -> int:
        return max(self._fewer(row, gone), gone.lost(row))

    def _fewer(self, row: LedgerRow, gone: Taken) -> int:
        held = self._held(row)
        if self._plain(row):
            return row.inserted - held.rows - len(gone.deleted(row))
        if (then := self._of_then(row)) is not None:
            stood_then, stand_now = then
            return stood(row) - len(stood_then.common(Intervals.union((stand_now, gone.deleted(row)))))
        lost = stood(row) - held.least - len(gone.deleted(row))
        if any(self._later(row, index) for index in self._pieces[row]):
            return lost
        # What it has put into quarantine itself is told by its batch there, so that none that it did not count stands for it.
        return max(lost, row.quarantined - self._own.get((row.query_id, row.batch_id, row.partition), 0))

    def _of_then(self, row: LedgerRow) -> tuple[Intervals, Intervals] | None:
        """Positions of its range that stood when it was committed, and those that do now, where later batches have read a part of it again.

        What they put where it had duplicates would stand for what it has lost elsewhere. There are few such rows: at most those in
        whose midst a rebase began. None for others, and where VACUUM has taken the target of that time.
        """
        if row not in self._then:
            self._then[row] = self._compared(row) if row.duplicate and self._read_in_part(row) else None
        return self._then[row]

    def _read_in_part(self, row: LedgerRow) -> bool:
        return len({not self._later(row, index) for index in self._pieces[row]}) > 1

    def _compared(self, row: LedgerRow) -> tuple[Intervals, Intervals] | None:
        target, records = self._tables.target, self._tables.all_records
        later = {(each.query_id, each.batch_id) for index in self._pieces[row] for each in self._later(row, index)}
        before = " AND ".join(f"NOT (query_id = {quoted(query_id)} AND batch_id = {batch})" for query_id, batch in sorted(later))
        try:
            then = self._offsets(row, replace(target, table=At(target.table.path, row.target_version)))
        except Unreadable:
            return None
        stood_then = Intervals.union((then, self._offsets(row, replace(records, where=before))))
        return stood_then, Intervals.union((self._offsets(row, target), self._offsets(row, records)))

    def _offsets(self, row: LedgerRow, rows: Rows) -> Intervals:
        """Those of these rows that lie in its range."""
        _, partition, offset = rows.columns
        inside = f"`{partition}` = {row.partition} AND `{offset}` >= {row.start_offset} AND `{offset}` < {row.end_offset}"
        found = positions(self._engine, replace(rows, where=f"({rows.where}) AND {inside}"), row.topic_id)
        return Intervals.of_offsets(found.get(row.partition, ()))

    def _read_again(self, row: LedgerRow) -> set[LedgerRow]:
        """The batches of later epochs that have read all of its range again, and found no more gaps than it had; else none.

        Of two checkpoints of one epoch, which only work without locks, the later batch may call a duplicate what the other has just
        inserted from the very same offset.
        """
        by_piece = [{each for each in self._later(row, index) if each.epoch > row.epoch} for index in self._pieces[row]]
        if not all(by_piece):
            return set()
        later = set().union(*by_piece)
        return later if sum(each.gap for each in later) <= row.gap else set()

    def _told_by_figures(self, short: Mapping[LedgerRow, int], gone: Taken) -> bool:
        """Whether just as many are missing as DELETE commits say of themselves whose versions VACUUM has taken.

        Where several batches have read the same offsets, a row may be missing to each of them: to how many, nobody can tell.
        """
        if not gone.untold or any(lost > gone.untold_since(row.target_version) or gone.lost(row) for row, lost in short.items()):
            return not short
        least = sum(_of_one_checkpoint(rows, short) for rows in _overlapping(short))
        # What was read again since may have come back.
        again = any(len(piece.rows) > 1 and max(row.target_version for row in piece.rows) > gone.untold_from for piece in self._cut)
        return least <= gone.untold if again else least == gone.untold

    def _missing(self, row: LedgerRow, lost: int, gone: Taken) -> Finding:
        held, deleted = self._held(row), len(gone.deleted(row))
        also = f" and DELETE commits removed {deleted}" if deleted else ""
        takers = list(gone.others(row))
        also += "".join(f"; version {commit.version} ({commit.operation}) took {number}" for commit, number in takers)
        if self._plain(row):
            what = f"the ledger says {row.inserted} rows were inserted, the target holds {held.rows}"
            return finding("ROWS_DIFFER", row, what + also)
        what = f"{stood(row)} records were put or found in target and quarantine, {lost} stand in neither"
        return finding("RECORDS_MISSING", row, what + also)


def stood(row: LedgerRow) -> int:
    """How many records of its range stood in target and quarantine when it was committed."""
    return row.inserted + row.quarantined + row.replayed


def _overlapping(rows: Iterable[LedgerRow]) -> Iterator[list[LedgerRow]]:
    """Ledger rows in groups of ranges that overlap."""
    group: list[LedgerRow] = []
    for row in sorted(rows, key=lambda row: (row.topic_id, row.partition, row.start_offset)):
        same = group and (group[0].topic_id, group[0].partition) == (row.topic_id, row.partition)
        if group and not (same and row.start_offset < max(each.end_offset for each in group)):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _of_one_checkpoint(rows: Sequence[LedgerRow], short: Mapping[LedgerRow, int]) -> int:
    """How many records these rows lack at least: those of one checkpoint have no offset in common."""
    lost: dict[str, int] = {}
    for row in rows:
        lost[row.query_id] = lost.get(row.query_id, 0) + short[row]
    return max(lost.values())
