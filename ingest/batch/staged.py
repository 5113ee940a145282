"""The staged records of a batch: which of them become rows, which go to quarantine, and which are duplicates (I3, I4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.batch.dedup import DIFFERS, POSITION, ROW, TIME, differs_from, later_copies, twice
from ingest.batch.probe import holding, near, probe
from ingest.batch.refused import id_texts
from ingest.batch.staged_parts import DUPLICATE, KEPT, PRESENT, REFUSED, Parts
from ingest.batch.staging import candidates
from ingest.contract.columns import PAYLOAD_HASH
from ingest.decode.row_hash import Hashes
from ingest.delta.batch_commit import BatchId
from ingest.delta.data_file import StagedFile
from ingest.delta.held_rows import held
from ingest.delta.live_table import DataFile, LiveTable
from ingest.delta.partition import read
from ingest.delta.posting import NOTHING, Key, Posting, Sums, Why, by_key
from ingest.delta.row_sums import position_hashes, summed
from ingest.kafka.offsets import LANE_BITS, OffsetRange, Partition, lane, of_lane, shown
from ingest.runtime.errors import Bug


@dataclass(frozen=True)
class Conflict:
    """A copy of an event id whose payload differs from another one's: where that one is, the id as text, and the record's own time.

    The time is in microseconds since 1970, because a producer may write any year.
    """

    detail: str
    event_id: str | None
    kafka_timestamp: int | None


Conflicts = dict[tuple[int, int, int], Conflict]
"""Conflicting copies by source, partition and offset."""
Outcomes = tuple[np.ndarray, np.ndarray]
"""Offsets and outcomes of the records of one partition."""


@dataclass
class Staged:
    """The staged records of a batch. `rows` are for the target, `refused` are records that are no event, `conflicts` go there too.

    `event_id` and `payload` name the columns of the event id and of the event.
    """

    event_id: tuple[str, ...]
    payload: tuple[str, ...]
    rows: Parts
    refused: Parts
    conflicts: Conflicts = field(default_factory=dict)
    _probed: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    _hits: dict[int, np.ndarray] = field(default_factory=dict)

    def refuse_open_books(self, ranges: Sequence[OffsetRange]) -> None:
        """Raises Bug POSITIONS_WRONG if a record was staged twice, or is not in the batch's offset ranges (I4)."""
        parts = (*self.rows.parts, *self.refused.parts)
        if not parts:
            return
        lanes, offsets = (np.concatenate(arrays) for arrays in ([part.lanes for part in parts], [part.offsets for part in parts]))
        inside = {each.of: each for each in ranges}
        for number in np.unique(lanes).tolist():
            of = of_lane(number)
            mine, due = offsets[lanes == number], inside.get(of, OffsetRange(of[1], 0, 0, source=of[0]))
            again, outside = len(mine) - len(np.unique(mine)), int(((mine < due.start) | (mine >= due.end)).sum())
            if again or outside:
                raise Bug(
                    "POSITIONS_WRONG",
                    f"{again} records of partition {shown(of)} were staged twice, and {outside} are not in the batch's range {due}.",
                    expected="each record of the range at most once. Nothing of the batch was committed.",
                )

    def mark_copies(self) -> None:
        """Later copies of an event id are duplicates; the least position wins (I3). Those with another payload are conflicts."""
        parts = self.rows.parts
        again = twice(np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)]))
        if not again.size:
            return
        starts = np.cumsum([0, *(len(part.hashes) for part in parts)])
        later = later_copies(pa.concat_tables(self._candidates(again, starts)))
        at = np.searchsorted(starts, rows := later[ROW].to_numpy(), side="right") - 1
        outcome = np.where(pc.is_valid(later[DIFFERS]).to_numpy(), REFUSED, DUPLICATE)
        for number, part in enumerate(parts):
            part.outcome[rows[at == number] - starts[number]] = outcome[at == number]
        self.conflicts |= self._conflicts(later.filter(pc.is_valid(later[DIFFERS])))

    def _conflicts(self, rows: pa.Table) -> Conflicts:
        """These rows as conflicts; `__differs` has the details."""
        texts, times = id_texts(rows, self.event_id).to_pylist(), rows[TIME].cast(pa.int64()).to_pylist()
        return {at: Conflict(*each) for at, *each in zip(_positions(rows), rows[DIFFERS].to_pylist(), texts, times, strict=True)}

    def _candidates(self, rows: np.ndarray, starts: np.ndarray) -> Iterator[pa.Table]:
        """The rows with these numbers as `later_copies` takes them: what the worker has handed over, the rest as it is stored."""
        names = [*dict.fromkeys((*self.event_id, *POSITION, TIME, *self.payload))]
        for part, start, end in zip(self.rows.parts, starts, starts[1:], strict=False):
            own = rows[(rows >= start) & (rows < end)] - start
            if part.copies is not None and own.size:
                known = part.copies[ROW].to_numpy()
                found = part.copies.filter(pa.array(np.isin(known, own)))
                yield found.set_column(found.column_names.index(ROW), ROW, pa.array(found[ROW].to_numpy() + start))
                own = own[~np.isin(own, known)]
            if own.size:
                there = part.columns(self.rows.folder, self._schema(names)).take(pa.array(own))
                yield candidates(there, self.event_id, self.payload, own + start)

    def compare(self, target: LiveTable) -> None:
        """Compare with the target's rows of the same event ids: a row's payload decides about every copy in the batch (`conflicts: table`).

        A copy with another payload is a conflict, unless it is that row itself, read again. A copy with the same payload is a duplicate,
        even if it differs from an earlier copy in the batch.
        """
        names = [*dict.fromkeys((*self.event_id, *POSITION))]
        for number, part in enumerate(self.rows.parts):
            files = near(part, target, self.event_id)
            if not files:
                continue
            mine = part.columns(self.rows.folder, self._schema([*names, TIME, PAYLOAD_HASH])).append_column(
                ROW, pa.array(np.arange(part.rows))
            )
            ids = mine.select(list(self.event_id))
            there = _rows_there(ids, holding(ids, files, target), self.rows.folder, self.rows.schema)
            if there is None:
                continue
            found = mine.join(there, list(self.event_id), join_type="inner").combine_chunks()
            itself = reduce(pc.and_, (pc.equal(found[name], found[f"_{name}"]) for name in POSITION))
            alike = pc.or_(pc.equal(found[PAYLOAD_HASH], found["__hash"]), itself).to_numpy()
            at = found[ROW].to_numpy()
            self.rows.parts[number].outcome[at] = np.where(alike, PRESENT, REFUSED)
            for position in _positions(found.filter(pa.array(alike))):
                self.conflicts.pop(position, None)
            found = found.append_column(DIFFERS, differs_from(*(found[f"_{name}"] for name in POSITION)))
            self.conflicts |= self._conflicts(found.filter(pa.array(~alike)))

    def spare(self, positions: Mapping[Partition, np.ndarray]) -> None:
        """Records at these offsets by partition are rows of the target already: they stay rows, and are not refused."""
        self.refused.mark(positions, PRESENT)
        for *of, offset in list(self.conflicts):
            if (partition := (of[0], of[1])) in positions and offset in positions[partition]:
                del self.conflicts[*partition, offset]
                self.rows.mark({partition: np.array([offset])}, PRESENT)

    def new_files(self, target: LiveTable) -> list[StagedFile]:
        """The files of the rows that are not lost and that the target does not hold, on the disk.

        Files of the target that were probed for an earlier snapshot are not opened again.
        """
        self._probed = {path: found for path, found in self._probed.items() if path in target.live}
        hits: dict[int, np.ndarray] = {}
        for number, part in enumerate(self.rows.parts):
            if not part.kept.any():
                continue
            new = [file for file in near(part, target, self.event_id) if number not in self._probed.get(file.path, {})]
            if new:
                for path, rows in probe(part.columns(self.rows.folder, self._schema(self.event_id)), new, target).items():
                    self._probed.setdefault(path, {})[number] = rows
            there = np.zeros(part.rows, bool)
            for found in self._probed.values():
                there[found.get(number, np.empty(0, np.int64))] = True
            if there.any():
                hits[number] = there
        self._hits = hits
        return self.rows.files(hits)

    def failed(self) -> int:
        """The number of records for quarantine."""
        return sum(int((part.outcome == KEPT).sum()) for part in self.refused.parts) + len(self.conflicts)

    def read(self) -> int:
        """The number of records."""
        return sum(len(part.offsets) for part in (*self.rows.parts, *self.refused.parts))

    def postings(
        self,
        at: BatchId,
        ranges: Sequence[OffsetRange],
        new: Sequence[StagedFile],
        stored: Mapping[Partition, np.ndarray],
        why: Why = "batch",
    ) -> Iterator[Posting]:
        """The books of a batch by partition, for the snapshot of the last `new_files`, which returned `new`.

        `stored` are the offsets that the quarantine has got. A `replay` reads only what is refused no more. Raises Bug BOOKS_OPEN if not
        each record that was read is in exactly one place.
        """
        added: dict[Partition, Sums] = {}
        for number, part in enumerate(self.rows.parts):
            keep = part.kept & ~self._hits[number] if number in self._hits else part.kept
            lanes, offsets = part.lanes[: part.rows][keep], part.offsets[: part.rows][keep]
            for key, sums in _summed(at, lanes, offsets, part.hashes[: part.rows][keep] if len(part.hashes) else None).items():
                added[key.of] = added.get(key.of, NOTHING) + sums
        number, rows = sum(file.rows for file in new), sum(each.rows for each in added.values())
        if number != rows:
            raise _open(f"the new files have {number} rows, and {rows} are to be added")
        outcomes, nothing = (self.rows.outcomes(self._hits), self.refused.outcomes()), np.empty(0, np.int64)
        for each in ranges:
            right, wrong = (found.get(each.of, (nothing, nothing)) for found in outcomes)
            yield self._posting(at, each, right, wrong, added.get(each.of, NOTHING), stored.get(each.of, nothing), why)

    def _posting(
        self, at: BatchId, offsets: OffsetRange, rows: Outcomes, refused: Outcomes, added: Sums, stored: np.ndarray, why: Why
    ) -> Posting:
        kept, duplicate, held, conflicting = (rows[0][rows[1] == outcome] for outcome in (KEPT, DUPLICATE, PRESENT, REFUSED))
        new, there = np.unique(kept), [held]
        if why == "batch":
            wrong = np.concatenate([refused[0][refused[1] == KEPT], conflicting])
            there += [refused[0][refused[1] == PRESENT], np.setdiff1d(wrong, stored)]
            read = np.concatenate([rows[0], refused[0]])
        else:
            read = rows[0][rows[1] != REFUSED]
        present = np.concatenate(there)
        placed = np.concatenate([new, present, duplicate, stored])
        if len(new) != added.rows or not np.array_equal(np.sort(read), np.sort(placed)):
            lost, once = np.setdiff1d(read, placed), np.setdiff1d(placed, read)
            raise _open(
                f"of the {len(read)} records of {offsets}, {len(new)} are new, {len(present)} present, {len(duplicate)} duplicates and "
                f"{len(stored)} quarantined; nowhere: {lost[:5].tolist()}, not read: {once[:5].tolist()}"
            )
        key = Key(at.epoch, at.number, *offsets.of)
        quarantined = _summed(at, np.full(len(stored), lane(offsets.of)), stored, None).get(key, NOTHING)
        return Posting(key, why, offsets, len(read), added, quarantined, len(present), len(duplicate))

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.rows.schema.field(name) for name in names])


def _summed(at: BatchId, lanes: np.ndarray, offsets: np.ndarray, ids: Hashes | None) -> dict[Key, Sums]:
    sources, partitions = lanes >> LANE_BITS, lanes & (1 << LANE_BITS) - 1
    keys = np.stack([np.full(len(offsets), at.epoch), np.full(len(offsets), at.number), sources, partitions])
    return by_key([summed(keys, offsets, position_hashes(ids, sources, partitions, offsets))])


def _open(found: str) -> Bug:
    expected = "each record that was read in exactly one place. Nothing of the batch was committed to the target."
    return Bug("BOOKS_OPEN", f"{found}.", expected=expected)


def _positions(rows: pa.Table) -> list[tuple[int, int, int]]:
    return list(zip(*(rows[name].to_pylist() for name in POSITION), strict=True))


def _rows_there(ids: pa.Table, files: Sequence[DataFile], folder: str, schema: pa.Schema) -> pa.Table | None:
    """The first row of each of these ids in the files: its position as `__source`, `__partition` and `__offset`, and `__hash`.

    A row without a hash was written before conflicts were compared, and decides nothing. None if there are no rows.
    """
    names = [*dict.fromkeys((*ids.column_names, *POSITION, PAYLOAD_HASH))]
    found = []
    for file in files:
        rows = read(folder, file, pa.schema([schema.field(name).with_nullable(True) for name in names]))
        rows = rows.filter(pc.is_valid(rows[PAYLOAD_HASH]))
        found.append(rows.filter(pa.array(held(rows.select(ids.column_names), ids))))
    table = pa.concat_tables(found) if found else None
    if table is None or not table.num_rows:
        return None
    columns = {name: table[name] for name in ids.column_names}
    columns |= {**{f"_{name}": table[name] for name in POSITION}, "__hash": table[PAYLOAD_HASH]}
    firsts = [*(f"_{name}" for name in POSITION), "__hash"]
    ordered = pa.table(columns).sort_by([(name, "ascending") for name in (*ids.column_names, *firsts[:3])])
    grouped = ordered.group_by(ids.column_names, use_threads=False).aggregate([(name, "first") for name in firsts])
    return grouped.rename_columns({f"{name}_first": name for name in firsts})
