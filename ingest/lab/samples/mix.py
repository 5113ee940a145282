"""The plan of a sample: which record goes into which transaction, with retries, aborts and poison, before anything is sent.

A plan depends only on the seed, so a run can be repeated, and a test can check it without a broker.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, NamedTuple, Protocol

from ingest.lab.samples.poison_records import POISON_KINDS, Poison, poison
from ingest.lab.samples.shop import PAYMENTS, SampleEvent, Shop

# A retry is sent at most this many transactions later: late enough to cross micro-batches, early enough for small samples.
RETRY_DELAY_TRANSACTIONS_MAX: Final = 5


class SampleTopic(NamedTuple):
    """The destination of one kind of event: the topic's name at the broker and its partition count."""

    name: str
    partitions: int


class SampleRecord(NamedTuple):
    """A record to send. `event_id` is None if none can be read from it; `poison` is the poison kind, or None for a valid event."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    event_id: str | None
    poison: str | None


@dataclass(frozen=True, slots=True)
class SampleTransaction:
    """The records of one transaction; `alongside` is a transaction that another producer keeps open at the same time."""

    number: int
    intent: Literal["commit", "abort"]
    records: tuple[SampleRecord, ...]
    retries: int = 0
    alongside: SampleTransaction | None = None


@dataclass(frozen=True, slots=True)
class Mix:
    """The composition of a sample. Shares, of events or of transactions, are between 0 and 1; raises ValueError for values out of range."""

    events: int
    poison: int = 0
    duplicate_share: float = 0.05
    aborted_share: float = 0.03
    payment_share: float = 0.4
    transaction_records: int = 1000

    def __post_init__(self) -> None:
        if self.events < 0 or self.poison < 0 or self.transaction_records < 1:
            raise ValueError(f"{self}: expected events >= 0, poison >= 0 and transaction_records >= 1.")
        if not (0 <= self.duplicate_share <= 1 and 0 <= self.aborted_share <= 1):
            raise ValueError(f"{self}: expected duplicate_share and aborted_share between 0 and 1.")


class SampleSource(Protocol):
    """An endless source of events, each with an id that occurs nowhere else."""

    def events(self, count: int) -> Iterator[SampleEvent]:
        """`count` events; each event's topic is a key of the plan's `topics`."""
        ...

    def poison(self, number: int) -> Poison:
        """A broken record; numbers 0, 1, 2 … cycle through all kinds."""
        ...


class ShopSource:
    """Orders and payments of the shop; the keys of `kinds` are the wanted topics."""

    def __init__(self, seed: int | str, kinds: Mapping[str, object], payment_share: float) -> None:
        self._shop = Shop(seed)
        self._payment_share = payment_share if PAYMENTS in kinds else 0.0
        self._poison = [kind for kind in POISON_KINDS if kind.topic in kinds]

    def events(self, count: int) -> Iterator[SampleEvent]:
        return self._shop.events(count, self._payment_share)

    def poison(self, number: int) -> Poison:
        return poison(self._poison[number % len(self._poison)], self._shop)


SourceOf = Callable[[str], SampleSource]


def plan(mix: Mix, topics: Mapping[str, SampleTopic], seed: int, source_of: SourceOf | None = None) -> Iterator[SampleTransaction]:
    """Yield the transactions in the order in which they must end; `topics` maps ORDERS and, optionally, PAYMENTS to their topics.

    `source_of(name)` replaces the shop's events: one source for committed events, and one with other ids for aborted events.

    Each of the `mix.events` distinct events is in at least one transaction with intent commit. `duplicate_share` of them are sent
    again: a third in the same transaction, the others in a later one, half of these to another partition. Ids of aborted
    transactions occur nowhere else and do not count in `mix.events`. With an aborted_share above 0 the first committed transaction
    has an aborted one alongside; with 0 none has. Poison is spread evenly and cycles through all kinds.
    """
    random = Random(f"plan/{seed}")
    source_of = source_of or (lambda name: ShopSource(name, topics, mix.payment_share))
    given, aborted = source_of(f"{seed}"), source_of(f"aborted/{seed}")
    source = given.events(mix.events)
    partitions = {topic.name: topic.partitions for topic in topics.values()}
    due: dict[int, list[SampleRecord]] = defaultdict(list)
    number = made = poisoned = 0
    aborts = 1.0 - mix.aborted_share
    while made < mix.events or poisoned < mix.poison or due:
        records: list[SampleRecord] = []
        retries = due.pop(number, [])
        room = mix.transaction_records - len(retries)
        for event in _take(source, room):
            made += 1
            record = _record(event, topics)
            records.append(record)
            if random.random() < mix.duplicate_share:
                if random.random() < 1 / 3:
                    retries.append(record)
                else:
                    due[number + random.randint(1, RETRY_DELAY_TRANSACTIONS_MAX)].append(_moved(record, partitions, random))
        for _ in range(mix.poison * made // mix.events - poisoned if mix.events else min(mix.poison - poisoned, room)):
            broken = given.poison(poisoned)
            poisoned += 1
            record = _record(SampleEvent(broken.topic, "", broken.key, b""), topics)
            record = record._replace(value=broken.value, event_id=broken.event_id, poison=broken.kind)
            records.insert(random.randint(0, len(records)), record)
        for retry in retries:
            records.insert(random.randint(len(records) // 2, len(records)), retry)
        alongside = None
        aborts += mix.aborted_share
        if mix.aborted_share and aborts >= 1 and records:
            aborts -= 1
            lost = aborted.events(max(mix.transaction_records // 2, 1))
            alongside = SampleTransaction(number + 1_000_000, "abort", tuple(_record(event, topics) for event in lost))
        if records:
            yield SampleTransaction(number, "commit", tuple(records), len(retries), alongside)
        number += 1


def _take(source: Iterator[SampleEvent], count: int) -> Iterator[SampleEvent]:
    for _ in range(count):
        event = next(source, None)
        if event is None:
            return
        yield event


def _record(event: SampleEvent, topics: Mapping[str, SampleTopic]) -> SampleRecord:
    # CRC-32 instead of Kafka's murmur2, which costs 10 microseconds per key in Python. A key must only stay in one partition.
    name, partitions = topics[event.topic]
    return SampleRecord(name, zlib.crc32(event.key) % partitions, event.key, event.value, event.event_id, None)


def _moved(record: SampleRecord, partitions: Mapping[str, int], random: Random) -> SampleRecord:
    """Move half of the late retries to another partition, as happens after partitions are added to a topic."""
    count = partitions[record.topic]
    if count == 1 or random.random() < 0.5:
        return record
    return record._replace(partition=(record.partition + random.randint(1, count - 1)) % count)
