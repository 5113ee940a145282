"""A topic's identity, and its offsets as the broker reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# A topic that holds copies (another cluster's, one made again) has another id, and the position holds it.
NOT_AGAIN = "ids that the table holds are not added again. But with `event_id: position` a copied record is another event: there begin "
NOT_AGAIN += "behind the copies (`--to` offsets or a time, `--accept-gap`)."


@dataclass(frozen=True)
class TopicId:
    """A topic: its name, its id as Kafka prints it and its cluster's id (both empty where the broker has none)."""

    name: str
    id: str
    cluster: str = ""


NO_TOPIC = TopicId("", "")


@dataclass(frozen=True)
class TopicState:
    """The topic as the broker has it: (earliest, end) offsets by partition.

    `decided` is where a reader of committed records ends: before the first open transaction. Empty for other readers.
    """

    topic: TopicId
    bounds: Mapping[int, tuple[int, int]]
    decided: Mapping[int, int] = field(default_factory=dict)

    def ends(self) -> dict[int, int]:
        """Where a reader ends now, by partition."""
        return {p: self.decided.get(p, end) for p, (_, end) in self.bounds.items()}


def topic_made_again(name: str) -> str:
    """What to do about a topic of another id, also one that is met in the midst of a run."""
    return (
        "check --bootstrap-servers: a topic of another cluster has another id, too. If this one was made again, "
        f"`ingest seek {name} --to earliest` goes on with it from its beginning; {NOT_AGAIN}"
    )
