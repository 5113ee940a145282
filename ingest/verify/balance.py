"""The balance of a table, from its books alone (I1, I4): ranges join, counts add up, and the ledger equals the commits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from ingest.kafka.intervals import EMPTY, Intervals
from ingest.kafka.offsets import OffsetRange, Partition
from ingest.ledger.books import BEGIN, Books
from ingest.ledger.ledger_line import Line


@dataclass(frozen=True)
class Finding:
    """Something that does not add up, with its batch, partition and offsets if it concerns one batch.

    `topic` is that of the partition, if the table has read several (`topic_of`).
    """

    code: str
    what: str
    epoch: int | None = None
    batch: int | None = None
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    topic: str | None = None

    def __str__(self) -> str:
        where = [] if self.epoch is None else [f"epoch {self.epoch} batch {self.batch}"]
        if self.partition is not None:
            where.append(f"{_named(self.partition, self.topic)} offsets [{self.start_offset}, {self.end_offset})")
        return f"{self.code}: {' '.join(where)}{': ' if where else ''}{self.what}"


@dataclass(frozen=True)
class Total:
    """Sums over all batches: offsets = read + gap, and read = inserted + present + duplicate + quarantined.

    `replayed` quarantined records became rows through `ingest quarantine replay`; they are not among the inserted ones.
    """

    batches: int
    offsets: int
    gap: int
    read: int
    inserted: int
    present: int
    duplicate: int
    quarantined: int
    replayed: int


def total(books: Books) -> Total:
    """The sums of the books."""
    rows = [line.posting for line in books.batches]
    return Total(
        len({(each.key.epoch, each.key.batch) for each in rows}),
        sum(len(each.range) for each in rows if each.range is not None),
        sum(each.gap for each in rows),
        sum(each.read for each in rows),
        sum(each.target.rows for each in rows if each.target is not None),
        sum(each.present or 0 for each in rows),
        sum(each.duplicate for each in rows),
        sum(each.quarantine.rows for each in rows),
        sum(line.posting.target.rows for line in books.replays if line.posting.target is not None),
    )


def topic_of(books: Books, source: int) -> str | None:
    """The topic of this number, for a report; None if the table has read one only. One that was recreated has its number, too."""
    if len({*books.topics, source}) == 1:
        return None
    names = [each.name for each in books.topics.values()]
    name = books.topics[source].name if source in books.topics else "?"
    return name if names.count(name) == 1 else f"{name} (source {source})"


def named(books: Books, of: Partition) -> str:
    """A partition for a report, with its topic if the table has read several."""
    return _named(of[1], topic_of(books, of[0]))


def _named(partition: int, topic: str | None) -> str:
    return f"partition {partition}" + (f" of topic {topic}" if topic else "")


def finding(code: str, line: Line, what: str, books: Books | None = None) -> Finding:
    """A finding about one batch and partition. With the books it has its topic."""
    key, at = line.posting.key, line.posting.range
    start, end = (None, None) if at is None else (at.start, at.end)
    return Finding(code, what, key.epoch, key.batch, key.partition, start, end, topic_of(books, key.source) if books is not None else None)


def check(books: Books) -> list[Finding]:
    """All findings of the books alone."""
    return [*_sums(books), *_joins(books), *_holes(books), *_differs(books)]


def pending(books: Books) -> dict[Partition, tuple[int, int]]:
    """The offsets [start, end) that earlier epochs have read and the topic's newest epoch has yet to read again, by partition."""
    reached: dict[Partition, int] = {}
    for _, at in _ranges(books.batches):
        reached[at.of] = max(reached.get(at.of, 0), at.end)
    rows = sorted(_ranges((*books.of(*BEGIN), *books.batches)), key=lambda each: each[0].posting.key)
    newest = {at.source: line.posting.key.epoch for line, at in rows}
    ends = {at.of: at.end for line, at in rows if line.posting.key.epoch == newest[at.source]}
    return {of: (end, reached[of]) for of, end in ends.items() if end < reached.get(of, 0)}


def _ranges(lines: Iterable[Line]) -> Iterator[tuple[Line, OffsetRange]]:
    return ((line, at) for line in lines if (at := line.posting.range) is not None)


def _sums(books: Books) -> Iterator[Finding]:
    for line in (*books.batches, *books.replays):
        each = line.posting
        if each.target is None or each.present is None:
            continue
        parts = each.target.rows + each.present + each.duplicate + each.quarantine.rows
        if each.read != parts:
            yield finding("SUM_WRONG", line, f"read {each.read}, but inserted + present + duplicate + quarantined = {parts}", books)
        if min(each.target.rows, each.present, each.duplicate, each.quarantine.rows, each.gap if each.why == "batch" else 0) < 0:
            yield finding("SUM_WRONG", line, "a count is negative", books)


def _joins(books: Books) -> Iterator[Finding]:
    """Within an epoch each range must start where the previous range of its partition ended."""
    rows = [(line.posting.key.epoch, at.of, line, at) for line, at in _ranges((*books.of(*BEGIN), *books.batches))]
    rows.sort(key=lambda each: (each[0], each[1], each[2].posting.key.batch, each[3].end))
    for _, group in groupby(rows, key=lambda each: each[:2]):
        for (*_, before, then), (*_, after, now) in pairwise(group):
            if now.start > then.end:
                yield finding("RANGE_MISSING", after, f"no batch of its epoch covers [{then.end}, {now.start}) before it", books)
            elif now.start < then.end:
                what = f"starts before offset {then.end}, the end of batch {before.posting.key.batch}"
                yield finding("RANGE_OVERLAPS", after, what, books)


def _holes(books: Books) -> Iterator[Finding]:
    """Over all epochs only accepted gaps, and offsets that are yet to be read again, may be missing."""
    to_reread = pending(books)
    spans: dict[Partition, list[tuple[OffsetRange, Line]]] = {}
    for line, at in _ranges((*books.of(*BEGIN), *books.batches)):
        spans.setdefault(at.of, []).append((at, line))
    reported = {replace(each, code="", what="") for each in _joins(books)}
    for of, rows in sorted(spans.items(), key=lambda each: each[0]):
        whole = Intervals.of([(min(at.start for at, _ in rows), max(at.end for at, _ in rows))])
        excused = Intervals.of([to_reread[of]]) if of in to_reread else EMPTY
        for start, end in whole.minus(books.covered(of)).minus(excused):
            _, after = min(((at, line) for at, line in rows if at.start >= end), key=lambda each: (each[0].start, each[1].posting.key))
            what = f"no batch of any epoch and no accepted gap covers [{start}, {end}) before it"
            found = finding("RANGE_MISSING", after, what, books)
            if replace(found, code="", what="") not in reported:
                yield found


def _differs(books: Books) -> Iterator[Finding]:
    """The statements whose lines in the ledger are not those of their commits."""
    for line in {(line.of_table, line.id, line.writer): line for line in books.differing}.values():
        what = f"the statement {line.id} has other lines in the ledger than in version {line.version} of the {line.of_table}"
        yield Finding("LEDGER_DIFFERS", what, line.posting.key.epoch, line.posting.key.batch)
