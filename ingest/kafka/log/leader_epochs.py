"""Leader epochs: whether a partition's log is still the one whose records were read (OffsetsForLeaderEpoch, KIP-101 and KIP-320).

Each record has the epoch of the leader that wrote it. After an unclean election the new leader's log may lack the newest records, and soon
it has others at their offsets. So an offset alone does not say which record was read. The offset with the epoch of the record before it
does: the logs of two leaders are equal up to the end of the last epoch that both have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from kafka.net.compat import KafkaNetClient

from ingest.kafka.kafka_errors import KafkaFailure
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.log.fetch import ANSWER_WITHIN_S, Reach, TopicReader, client_of
from ingest.kafka.offsets import OffsetRange, Partition, Position, of_source
from ingest.runtime.errors import InvalidEnvironment, RunStopped


class Log(Protocol):
    """What a TopicReader knows of a topic's log."""

    def reaches(self, epochs: Mapping[int, int]) -> Mapping[int, Reach]: ...

    def epoch_at(self, partition: int, offset: int) -> int | None: ...


# As long as a batch waits for a lost broker (topic.py).
BACK_WITHIN_S = 90.0
ASKED_AGAIN_AFTER_S = 0.5

Taken = dict[int, tuple[int, int]]
"""The offsets [start, end) that the log has lost, by partition."""


class LeaderEpochs:
    """Asks about the topics of one table for its batches, over connections that stay open, one to each broker. Call `close` at the end.

    `topics` are the names by number. `still_ours` waits for a lost broker, and raises if there is none, or if another topic has a name now.
    """

    def __init__(self, kafka: KafkaOptions, topics: Mapping[int, str], table: str, still_ours: Callable[[], None]) -> None:
        self._kafka, self._topics, self._table, self._still_ours = kafka, topics, table, still_ours
        self._readers: dict[int, TopicReader] = {}
        self._client: KafkaNetClient | None = None

    def with_epochs(self, ranges: Sequence[OffsetRange], read: Mapping[Partition, Position]) -> tuple[OffsetRange, ...]:
        """The ranges of a batch with their leader epochs; see the function `with_epochs`.

        Raises RunStopped LOG_TRUNCATED, the errors of `still_ours`, and the codes of TopicReader as RunStopped.
        """
        found: list[OffsetRange] = []
        for number, topic in self._topics.items():
            here = [each for each in ranges if each.source == number]
            if here:
                found += self._of_topic(number, topic, here, of_source(read, number))
        return tuple(found)

    def _of_topic(self, number: int, topic: str, ranges: Sequence[OffsetRange], read: Mapping[int, Position]) -> tuple[OffsetRange, ...]:
        deadline, once = time.monotonic() + BACK_WITHIN_S, False
        while True:
            try:
                found, taken = self._asked(number, topic, ranges, read)
            except InvalidEnvironment as error:
                if time.monotonic() > deadline:
                    raise KafkaFailure(error.code, error.found.rstrip("."), error.expected, error.remedy).stopped(self._table) from error
                self._still_ours()
                time.sleep(ASKED_AGAIN_AFTER_S)  # other brokers may know the topic while a leader is still absent
                continue
            if not taken:
                return found
            self._still_ours()  # another topic has another log
            if once:
                raise RunStopped(
                    "LOG_TRUNCATED",
                    f"topic {topic} has lost {named(taken)} while {self._table} read it: its leader was elected without them. "
                    "Nothing of the current batch was written.",
                    expected="a log that only grows: an unclean election, or a broker that lost files, took records back.",
                    remedy="run again: it continues if no committed batch has read them, and says else what to do.",
                )
            once = True
            self.close()  # a leader that was replaced a moment ago may not know it yet, and its log ends there: the leaders are looked up

    def _asked(
        self, number: int, topic: str, ranges: Sequence[OffsetRange], read: Mapping[int, Position]
    ) -> tuple[tuple[OffsetRange, ...], Taken]:
        try:
            self._client = self._client or client_of(self._kafka)
            if number not in self._readers:
                self._readers[number] = TopicReader(self._kafka, topic, client=self._client)
            return with_epochs(self._readers[number], ranges, read)
        except InvalidEnvironment:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
        self._client = None
        self._readers.clear()


def ask_taken_back(kafka: KafkaOptions, topic: str, read: Mapping[int, Position], within_s: float = ANSWER_WITHIN_S) -> Taken:
    """Ask the brokers for `taken_back`, if anything was read. Raises the errors of TopicReader."""
    if not read:
        return {}
    with TopicReader(kafka, topic, answer_within_s=within_s) as reader:
        return taken_back(reader, {partition: each for partition, each in read.items() if partition in reader.partitions})


def taken_back(log: Log, read: Mapping[int, Position]) -> Taken:
    """The offsets before these positions that the topic's log has lost."""
    reaches = log.reaches({partition: each.leader_epoch for partition, each in read.items()})
    found = {partition: _lost(log, partition, read[partition], reach) for partition, reach in sorted(reaches.items())}
    return {partition: lost for partition, lost in found.items() if lost is not None}


def with_epochs(log: Log, ranges: Sequence[OffsetRange], read: Mapping[int, Position]) -> tuple[tuple[OffsetRange, ...], Taken]:
    """The ranges of a batch with the leader epoch of the record before each end, and what the log has lost before these ends.

    `read` are positions up to which the table was read: those where a range starts are checked. Call it before the records are read: an
    election that takes some of them back meanwhile is then found by the next call. Normally this is one request to each leader, because the
    epoch is still the same. A range without an offset keeps the epoch of its position. There is no epoch if the brokers know none.
    """
    read = {r.partition: read[r.partition] for r in ranges if r.partition in read and read[r.partition].offset == r.start}
    asked = {r.partition: read[r.partition].leader_epoch if r.partition in read else 0 for r in ranges if r.partition in read or len(r)}
    reaches = log.reaches(asked) if asked else {}
    found: list[OffsetRange] = []
    taken: Taken = {}
    for each in ranges:
        at, reach = read.get(each.partition), reaches.get(each.partition)
        epoch = at.leader_epoch if at is not None else None
        lost = _lost(log, each.partition, at, reach) if at is not None and reach is not None else None
        if lost is None and reach is not None and reach.end >= 0 and len(each):
            reach = _covering(log, each, asked[each.partition], reach)
            epoch = reach.leader_epoch
            lost = (reach.end, each.end) if reach.end < each.end else None
        if lost is not None:
            taken[each.partition] = lost
        found.append(replace(each, leader_epoch=epoch))
    return tuple(found), taken


def named(taken: Mapping[int, tuple[int, int]]) -> str:
    """The lost offsets, for a message."""
    return ", ".join(f"partition {partition} [{start}, {end})" for partition, (start, end) in sorted(taken.items()))


def _lost(log: Log, partition: int, at: Position, reach: Reach) -> tuple[int, int] | None:
    # A replica that was made after a compaction knows no epoch of which it got no record. So only a record of another epoch counts.
    same = reach.leader_epoch == at.leader_epoch
    if reach.end >= at.offset and (same or log.epoch_at(partition, at.offset - 1) in (None, at.leader_epoch)):
        return None
    # With another epoch in its place, or with none that the leader knows, at least the last record is another one.
    return max(0, min(reach.end, at.offset - 1) if reach.end >= 0 else at.offset - 1), at.offset


def _covering(log: Log, range_: OffsetRange, epoch: int, reach: Reach) -> Reach:
    """The answer for the lowest epoch whose log reaches the end of the range; if there is none, that for the newest epoch.

    `reach` is the answer for `epoch`, which is not above it. Few epochs lie between two batches; a first batch starts at epoch 0.
    """
    if reach.end >= range_.end:
        return reach
    low, below, step = epoch, reach, 1
    high: int | None = None
    above = reach
    while high is None or high - low > 1:
        middle = low + step if high is None else (low + high) // 2
        found = log.reaches({range_.partition: middle})[range_.partition]
        if 0 <= found.end < range_.end:
            low, below, step = middle, found, 2 * step
        else:
            high, above = middle, found
    return above if above.end >= 0 else below
