"""A topic's identity, and its offsets as the broker reports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ingest.kafka.offsets import Position

# A topic with copied records (on another cluster, or recreated) has another id, and the event id `position` contains the topic id.
NOT_AGAIN = "ids that the table contains are not added again. But with `event_id: position` a copied record is another event: then start "
NOT_AGAIN += "after the copies (`--to` offsets or a time, `--accept-gap`)."


@dataclass(frozen=True)
class TopicId:
    """A topic's name, its id as Kafka prints it, and its cluster's id. Both ids are empty if the broker has none."""

    name: str
    id: str
    cluster: str = ""

    def is_same(self, before: TopicId) -> bool:
        """Whether offsets of the topic `before` mean something in this one. Its ids may be unknown: then the cluster's are compared."""
        if self.name != before.name:
            return False
        if self.comparable(before):
            return self.id == before.id
        # Brokers before Kafka 2.8 have no topic ids.
        return self.cluster == before.cluster if self.cluster and before.cluster else not before.id

    def comparable(self, before: TopicId) -> bool:
        """Whether both have an id."""
        return bool(self.id and before.id)


NO_TOPIC = TopicId("", "")


@dataclass(frozen=True)
class TopicState:
    """A topic's offsets as the broker reports them: `bounds` are (earliest, end) by partition.

    `decided` is the end for a reader of committed records by partition: the last stable offset. It is empty for other readers. `taken_back`
    asks the broker which offsets [start, end) before these positions the log has lost.
    """

    topic: TopicId
    bounds: Mapping[int, tuple[int, int]]
    decided: Mapping[int, int] = field(default_factory=dict)
    taken_back: Callable[[Mapping[int, Position]], Mapping[int, tuple[int, int]]] = field(default=lambda _: {}, compare=False)

    def ends(self) -> dict[int, int]:
        """The current end for a reader, by partition."""
        return {p: self.decided.get(p, end) for p, (_, end) in self.bounds.items()}


def topic_made_again(name: str) -> str:
    """The remedy if a topic's id differs, at a start or during a run."""
    return (
        "check --bootstrap-servers: a topic of another cluster has another id, too. If this topic was recreated, "
        f"`ingest seek {name} --to earliest` reads it from its beginning; {NOT_AGAIN}"
    )


def topic_copied(name: str) -> str:
    """The remedy if the topic has lost records that the table has read."""
    return (
        "new records get the offsets of the lost ones a second time: stop the producers, copy all that the topic still has into another "
        f"topic, delete the topic, recreate it from that copy and run `ingest seek {name} --to earliest`; {NOT_AGAIN}"
    )
