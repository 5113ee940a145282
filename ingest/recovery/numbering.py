"""The numbers of a table's topics. Rows, offsets and postings name a topic by its place in the list that every commit carries (I6). Pure.

A number means one topic for as long as the table exists: a topic that joins, or was recreated, gets the next one. So a position (number,
partition, offset) means one record, in whichever epoch it was read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ingest.kafka.offsets import Partition
from ingest.kafka.topic_state import TopicId, TopicState


@dataclass(frozen=True)
class Numbered:
    """All topics that a table has ever read, by their numbers, and the states of those that its contract names now."""

    sources: tuple[TopicId, ...]
    states: Mapping[int, TopicState]

    @property
    def bounds(self) -> dict[Partition, tuple[int, int]]:
        """The earliest offset and the end of each partition."""
        return {(number, p): each for number, state in self.states.items() for p, each in sorted(state.bounds.items())}

    @property
    def firsts(self) -> dict[Partition, int]:
        """The earliest offset of each partition."""
        return {of: first for of, (first, _) in self.bounds.items()}

    @property
    def ends(self) -> dict[Partition, int]:
        """The current end of each partition for a reader."""
        return {(number, p): end for number, state in self.states.items() for p, end in sorted(state.ends().items())}

    def named(self, of: Partition) -> str:
        """A partition for a message, with its topic if there are several."""
        return f"partition {of[1]}" + (f" of topic {self.sources[of[0]].name}" if len(self.states) > 1 else "")

    def typed(self, of: Partition) -> str:
        """A partition as `ingest seek --to` takes it."""
        return f"{self.sources[of[0]].name}/{of[1]}" if len(self.states) > 1 else str(of[1])

    @property
    def decided(self) -> dict[Partition, int]:
        """The end of the committed records of each partition; empty for other readers."""
        return {(number, p): end for number, state in self.states.items() for p, end in state.decided.items()}


def numbered(recorded: Sequence[TopicId], states: Collection[TopicState], *, by_name: bool = False) -> Numbered:
    """Number the topics that the brokers have now, after those that the table has `recorded`.

    `by_name`: a topic whose id cannot be compared is the recorded one of its name.
    """
    sources, found = [*recorded], {}
    for state in states:
        now = state.topic
        known = [n for n, each in enumerate(recorded) if now.is_same(each)]
        if by_name and not known:  # the newest of the name
            known = [n for n, each in enumerate(recorded) if now.name == each.name][-1:]
            known = [n for n in known if not now.comparable(recorded[n])]
        number = known[-1] if known else len(sources)
        if known:  # brokers that were upgraded report an id that they had not before
            before = recorded[number]
            sources[number] = replace(now, id=now.id or before.id, cluster=now.cluster or before.cluster)
        else:
            sources.append(now)
        found[number] = state
    return Numbered(tuple(sources), found)
