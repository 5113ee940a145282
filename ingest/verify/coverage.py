"""The offsets that a table accounts for, as verify judges: where a seek to the table's end starts, and whether a start may continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ingest.delta.delta_sql import Engine
from ingest.delta.posting import NOTHING, Key, Posting, Sums
from ingest.kafka.intervals import EMPTY, Intervals
from ingest.kafka.offsets import Partition
from ingest.ledger.books import BEGIN, READ, read_books
from ingest.runtime.places import Places
from ingest.verify.count import Account, Held, account


@dataclass(frozen=True)
class Coverage:
    """The offsets of some topics that the table accounts for, by partition.

    `begins`: the lowest offset at which an epoch started. `whole`: offsets in batches of which it is known that no rows are missing, and in
    accepted gaps. `ends`: the highest end of any batch. `known` is False if target or quarantine contains rows of batches that are in
    neither ledger nor log: then nothing can be concluded about earlier offsets. `written_off` are the postings of what is missing.
    """

    begins: Mapping[Partition, int]
    whole: Mapping[Partition, Intervals]
    ends: Mapping[Partition, int]
    known: bool
    written_off: tuple[Posting, ...] = ()

    def first_missing(self, of: Partition) -> int:
        """The first offset, from where reading started, that is not whole. If all are, the end of the whole offsets."""
        begin = self.begins[of]
        covered = next(((start, end) for start, end in self.whole.get(of, EMPTY) if start <= begin < end), None)
        return begin if covered is None else covered[1]


def coverage(engine: Engine, places: Places, numbers: Collection[int]) -> Coverage:
    """Add up the tables as verify does, for the topics with these numbers. A missing table counts as empty.

    Raises Refused LOG_TORN, and Unreadable.
    """
    books = read_books(engine, places)
    return covered(account(engine, places, books), numbers)


def covered(counted: Account, numbers: Collection[int]) -> Coverage:
    """The coverage of topics, from the comparison of tables and books."""
    books = counted.books
    begins: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    whole: dict[Partition, Intervals] = {}
    first: dict[int, int] = {}
    here = [line for line in books.of(*READ, *BEGIN, "gap", "write-off") if line.posting.key.source in numbers]
    # In the order of the statements: what a seek has written off is whole again where later batches have read it.
    for line in sorted(here, key=lambda line: (line.id, line.posting.why != "write-off")):
        at, key, of = line.posting.range, line.posting.key, line.posting.key.of
        first[key.source] = min(key.epoch, first.get(key.source, key.epoch))
        if line.posting.why == "write-off":
            written = counted.lines.get(key)  # of a batch or a replay
            lost = written.posting.range if written is not None else None
            whole[of] = whole.get(of, EMPTY).minus(EMPTY if lost is None else Intervals.of([(lost.start, lost.end)]))
            continue
        if at is None:
            continue
        if key not in books.unsettled:
            whole[of] = Intervals.union([whole.get(of, EMPTY), Intervals.of([(at.start, at.end)])])
        if line.posting.why != "gap":
            begins[of] = min(at.start, begins.get(of, at.start))
        if line.posting.why in READ:
            ends[of] = max(at.end, ends.get(of, 0))
    for key in {**counted.target.missing, **counted.quarantine.missing}:
        if key.source in numbers and (lost := counted.lines[key].posting.range) is not None:
            whole[key.of] = whole.get(key.of, EMPTY).minus(Intervals.of([(lost.start, lost.end)]))
    # If the start of a topic's first epoch is lost, it may have been any offset.
    keys = (line.posting.key for line in here if line.posting.why in ("first", "seek", "rebuild"))
    sure = {key.source for key in keys if key.epoch == first[key.source]}
    begins = {of: begin if of[0] in sure else 0 for of, begin in begins.items()}
    known = not (counted.target.strays or counted.quarantine.strays)
    return Coverage(begins, whole, ends, known, tuple(_written_off(counted, numbers)))


def _written_off(counted: Account, numbers: Collection[int]) -> list[Posting]:
    """The postings that take what is missing of these topics out of the books, so that they balance while it is read again.

    What an earlier seek has written off, or retention or an erasure removed, may be there again after a RESTORE: that is taken back. Else
    the books would never balance again, also once it has been removed again. What is missing of another topic is not read again, so it
    stays a finding.
    """
    off: Counter[tuple[str, Key]] = Counter()
    for line in counted.books.of("write-off", "retention", "erasure"):
        off["target", line.posting.key] += line.posting.inserted
        off["quarantine", line.posting.key] += line.posting.quarantine.rows

    def correction(held: Held, key: Key) -> Sums:
        wrong = held.wrong.get(key, NOTHING)
        return -wrong if (key.source in numbers if wrong.rows >= 0 else wrong.rows >= off[held.name, key]) else NOTHING

    target, quarantine = counted.target, counted.quarantine
    keys = sorted({*target.wrong, *quarantine.wrong})
    found = (Posting(key, "write-off", target=correction(target, key), quarantine=correction(quarantine, key)) for key in keys)
    return [each for each in found if each.target or each.quarantine]


def shortage(engine: Engine, places: Places) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Batches with missing rows, and rows of no known batch, both as findings in words. Raises the errors of `coverage`."""
    counted = account(engine, places, read_books(engine, places))
    found = [*counted.findings(engine)]
    strays = tuple(str(each) for each in found if each.code == "ROWS_OF_NO_BATCH")
    return tuple(str(each) for each in found if each.code != "ROWS_OF_NO_BATCH"), strays
