"""The roll-back: which quarantined records an uncommitted batch has left, that this epoch will read again (I7). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.delta_sql import quoted
from ingest.recovery.facts import Facts
from ingest.stream.mark import FENCE, BatchId


@dataclass(frozen=True)
class RollBack:
    """Deletes records of the batches above `newest` and below `epoch`, as far as their offsets lie at or behind `starts`.

    A partition without a start begins at 0. Never by offsets alone, and never another topic's: a committed batch's records stay, and so
    does what will not be read again.
    """

    epoch: int
    newest: BatchId
    topic_id: str
    starts: Mapping[int, int]

    @property
    def condition(self) -> str:
        """The predicate of the DELETE."""
        e, b = self.newest.epoch, self.newest.number
        uncommitted = f"epoch < {self.epoch} AND (epoch > {e} OR (epoch = {e} AND batch > {b})) AND topic_id = {quoted(self.topic_id)}"
        places = [f"(`partition` = {p} AND `offset` >= {start})" for p, start in sorted(self.starts.items())]
        if self.starts:
            places.append(f"`partition` NOT IN ({', '.join(map(str, sorted(self.starts)))})")
        return f"{uncommitted} AND ({' OR '.join(places)})" if places else uncommitted

    def takes(self, id: BatchId, topic_id: str, partition: int, offset: int) -> bool:
        """Whether it deletes this record: the same as `condition`."""
        uncommitted = id.epoch < self.epoch and id > self.newest
        return uncommitted and topic_id == self.topic_id and offset >= self.starts.get(partition, 0)


def roll_back(facts: Facts, epoch: int, starts: Mapping[int, int]) -> RollBack | None:
    """What `epoch`, which begins at `starts`, has to roll back; None where the quarantine's newest batch is committed.

    `facts` are those of the look behind both fences: nobody else can commit any more.
    """
    assert facts.broker is not None
    quarantine, target = facts.quarantine, facts.target.newest
    committed = target.id if target is not None else BatchId(0, FENCE)
    if quarantine.newest is None and quarantine.whole_log:
        return None
    # A log that was cleaned does not tell; then the DELETE looks.
    if quarantine.newest is not None and quarantine.newest <= committed:
        return None
    return RollBack(epoch, committed, facts.broker.topic.id, starts)
