"""The offsets that batches cover, cut where the batches that have read them change. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise

from ingest.stream.ledger_row import LedgerRow


@dataclass(frozen=True)
class Piece:
    """Offsets [start, end) of a partition that the same batches have read: one as a rule, more where a rebase has read again."""

    topic_id: str
    partition: int
    start: int
    end: int
    rows: tuple[LedgerRow, ...]


def pieces(rows: Iterable[LedgerRow]) -> list[Piece]:
    """The ledger's ranges by topic id, partition and offset, no two of which overlap; empty ranges are left out."""
    found: list[Piece] = []
    full = (row for row in rows if row.end_offset > row.start_offset)
    ordered = sorted(full, key=lambda row: (row.topic_id, row.partition, row.start_offset, row.end_offset))
    for (topic_id, partition), of_partition in groupby(ordered, key=lambda row: (row.topic_id, row.partition)):
        theirs = list(of_partition)
        cuts = sorted({offset for row in theirs for offset in (row.start_offset, row.end_offset)})
        reading: list[LedgerRow] = []
        coming = iter([*theirs, None])
        row = next(coming)
        for start, end in pairwise(cuts):
            reading = [each for each in reading if each.end_offset > start]
            while row is not None and row.start_offset == start:
                reading.append(row)
                row = next(coming)
            if reading:
                found.append(Piece(topic_id, partition, start, end, tuple(reading)))
    return found
