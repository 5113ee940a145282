"""Postings: what one statement read, and what it added to and removed from the tables, by whose rows these are.

Each stands in the statement's own commit, and is a row of the ledger after that (I4, I7). Numbers can agree by chance, so rows are summed
up in three ways (`Sums`). `verify` computes the same sums from the tables: they equal the sum of all postings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, Literal, get_args

from ingest.kafka.offsets import OffsetRange, Partition

if TYPE_CHECKING:
    import pyarrow as pa

Why = Literal["first", "start", "seek", "gap", "batch", "replay", "rebuild", "retention", "erasure", "write-off"]
"""`first`: the offsets at which a table begins. `seek`: those at which an epoch begins that reads from elsewhere. `start`: those of an
epoch that goes on where the table ends, for a replay or a rebuild. `gap`: offsets that a seek leaves out. `batch`: a batch. `replay`:
quarantined records that became rows. `rebuild`: the rows of a rebuilt table. `retention`, `erasure`: what `ingest maintain` and `ingest
erase` removed. `write-off`: what was missing when a seek read the tables."""
WHYS: tuple[Why, ...] = get_args(Why)
MODULUS = 1 << 64
# Offsets are added up in two halves, whose sums do not overflow.
HALF_BITS = 32


@dataclass(frozen=True, order=True)
class Key:
    """Whose rows: the epoch and batch that wrote them, the source (the number of its topic) and Kafka's partition."""

    epoch: int
    batch: int
    source: int
    partition: int

    @property
    def of(self) -> Partition:
        """Source and partition."""
        return self.source, self.partition


@dataclass(frozen=True)
class Sums:
    """The number of rows, the sum of their offsets, and the sum modulo 2^64 of a hash of each row's position and event id.

    Records in quarantine are hashed without an event id. The sums of what was removed are negative, but for the hash.
    """

    rows: int = 0
    offsets: int = 0
    hash: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.rows + other.rows, self.offsets + other.offsets, (self.hash + other.hash) % MODULUS)

    def __neg__(self) -> Sums:
        return Sums(-self.rows, -self.offsets, -self.hash % MODULUS)

    def __sub__(self, other: Sums) -> Sums:
        return self + -other

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Sums()


@dataclass(frozen=True)
class Posting:
    """One line of the books: a statement's effect on the rows of one key.

    `range` are the offsets that it read, or left out, or starts at; None if it is about rows only. Of the `read` records, `target` and
    `quarantine` were added there, `present` ones are in one of these tables already (by event id, or by position), `duplicate` ones are
    later copies of an event id inside the batch. `target` and `present` are None until a later posting of the same key says them: Delta in
    Spark tells only afterwards what a MERGE has inserted.
    """

    key: Key
    why: Why
    range: OffsetRange | None = None
    read: int = 0
    target: Sums | None = NOTHING
    quarantine: Sums = NOTHING
    present: int | None = 0
    duplicate: int = 0

    def __post_init__(self) -> None:
        if self.range is not None and self.range.of != self.key.of:
            raise ValueError(f"a range of another partition than {self.key}: {self.range}")

    @property
    def is_open(self) -> bool:
        """Whether a later posting has to say what became of it."""
        return self.target is None

    @property
    def inserted(self) -> int:
        """The rows that were added to the target, as far as this posting says."""
        return self.target.rows if self.target is not None else 0

    @property
    def repeated(self) -> int:
        """The records whose event id was there before: in the tables, or earlier in the batch."""
        return (self.present or 0) + self.duplicate

    @property
    def gap(self) -> int:
        """The offsets of its range without a record."""
        return 0 if self.range is None else len(self.range) - self.read

    def fields(self) -> list[Any]:
        """The posting as a list of numbers and NULLs, for a commit."""
        at, read = self.range, [self.read, self.present, self.duplicate]
        target = [None] * 3 if self.target is None else [self.target.rows, self.target.offsets, self.target.hash]
        quarantine = [self.quarantine.rows, self.quarantine.offsets, self.quarantine.hash]
        offsets = [None] * 3 if at is None else [at.start, at.end, at.leader_epoch]
        return [self.key.epoch, self.key.batch, self.key.source, self.key.partition, *offsets, *read, *target, *quarantine]

    @staticmethod
    def of_fields(why: str, fields: Sequence[Any]) -> Posting:
        """The inverse of `fields`. Raises ValueError and TypeError for anything else."""
        epoch, batch, source, partition, start, end, leader_epoch, read, present, duplicate, *sums = fields
        if why not in WHYS:
            raise ValueError(f"no reason of ours: {why}")
        key = Key(index(epoch), index(batch), index(source), index(partition))
        last = None if leader_epoch is None else index(leader_epoch)
        at = None if start is None else OffsetRange(key.partition, index(start), index(end), last, key.source)
        t, q = sums[:3], sums[3:]
        if len(q) != 3:
            raise ValueError(f"not the fields of a posting: {fields}")
        target = None if t[0] is None else Sums(*map(index, t))
        known = None if present is None else index(present)
        return Posting(key, why, at, index(read), target, Sums(*map(index, q)), known, index(duplicate))


def by_why(postings: Iterable[Posting]) -> dict[str, list[list[Any]]]:
    """Postings as a JSON object."""
    found: dict[str, list[list[Any]]] = {}
    for each in postings:
        found.setdefault(each.why, []).append(each.fields())
    return found


def of_json(value: Mapping[str, Sequence[Sequence[Any]]]) -> tuple[Posting, ...]:
    """The inverse of `by_why`. Raises ValueError, TypeError and AttributeError for anything else."""
    return tuple(Posting.of_fields(why, fields) for why, each in value.items() for fields in each)


def by_key(sums: Iterable[pa.RecordBatch]) -> dict[Key, Sums]:
    """The sums of `row_sums` by key."""
    found: dict[Key, Sums] = {}
    for batch in sums:
        for *fields, rows, high, low, hash_ in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            key = Key(*fields)
            found[key] = found.get(key, NOTHING) + Sums(rows, (high << HALF_BITS) + low, hash_)
    return found


def removals(sums: Mapping[Key, Sums], why: Why, *, target: bool) -> tuple[Posting, ...]:
    """The postings for rows that left the target, or else the quarantine."""
    gone = ((key, -each) for key, each in sorted(sums.items()) if each)
    return tuple(Posting(key, why, target=each) if target else Posting(key, why, quarantine=each) for key, each in gone)
