"""The judge: compares the records that plain consumers see with the records offered and with the outcomes that the sender logged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from kafka import KafkaConsumer, TopicPartition

from ingest.lab.delivery_modes.reported import Entry, numbers
from ingest.runtime.errors import RunStopped

_READ_WITHIN_S: Final = 60.0


@dataclass(frozen=True)
class ModeVerdict:
    """Counts of records.

    `lost`: offered, but no read_committed reader sees them. `doubled`: copies beyond the first. `reordered`: first copies behind a later
    record of their partition. `lost_though_reported`: lost although the sender logged them as delivered. `hidden`: visible only to a
    read_uncommitted reader.
    """

    lost: int
    doubled: int
    reordered: int
    lost_though_reported: int
    hidden: int


def judge(
    offered: int, committed: Sequence[Sequence[int]], uncommitted: Sequence[Sequence[int]], reported: Iterable[Entry] = ()
) -> ModeVerdict:
    """Count the harm. `committed` and `uncommitted` are the record numbers seen at each isolation level, per partition in offset order.

    `reported` are the entries of the sender's log. Raises ValueError for a record that nobody offered.
    """
    copies = Counter(number for partition in committed for number in partition)
    if strange := copies.keys() - set(range(offered)):
        raise ValueError(f"records that nobody offered: {sorted(strange)[:5]}, expected 0 to {offered - 1}.")
    lost = set(range(offered)) - copies.keys()
    return ModeVerdict(
        lost=len(lost),
        doubled=copies.total() - len(copies),
        reordered=sum(map(_behind_a_later_one, committed)),
        lost_though_reported=len(lost & numbers(reported, "delivered")),
        hidden=sum(map(len, uncommitted)) - sum(map(len, committed)),
    )


def _behind_a_later_one(partition: Iterable[int]) -> int:
    seen: set[int] = set()
    highest, behind = -1, 0
    for number in partition:
        behind += number not in seen and number < highest
        seen.add(number)
        highest = max(highest, number)
    return behind


class Reader(AbstractContextManager["Reader"]):
    """A plain consumer of one topic at one isolation level, without a group. A context manager."""

    def __init__(self, servers: str, topic: str, level: str) -> None:
        options = {"isolation_level": level, "enable_auto_commit": False, "metrics_enabled": False}
        self._consumer = KafkaConsumer(bootstrap_servers=servers, **options)
        self._topic = topic

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self) -> list[list[tuple[int, int]]]:
        """Lists of (offset, record number) per partition, from the start to the current end. Raises RunStopped TRIAL_STUCK."""
        places = [TopicPartition(self._topic, number) for number in sorted(self._consumer.partitions_for_topic(self._topic))]
        self._consumer.assign(places)
        self._consumer.seek_to_beginning(*places)
        ends = self._consumer.end_offsets(places)
        found: list[list[tuple[int, int]]] = [[] for _ in places]
        deadline = time.monotonic() + _READ_WITHIN_S
        while any(self._consumer.position(place) < ends[place] for place in places):
            if time.monotonic() > deadline:
                raise stuck(f"{self._topic} was not read to its end within {_READ_WITHIN_S:g} s")
            for place, records in self._consumer.poll(timeout_ms=200).items():
                found[place.partition] += [(record.offset, int(record.value)) for record in records]
        return found


def stuck(what: str) -> RunStopped:
    """The error for a trial that does not end and so cannot be judged."""
    return RunStopped(
        "TRIAL_STUCK", f"{what}.", expected="a trial that ends.", remedy="run it again on a quieter machine, or with fewer --records."
    )
